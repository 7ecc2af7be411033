"""CANARY's ranking of a table of metrics (Sun et al. 2023, section 3.3): Tables 7 and 8 to Table 9.

Two layers of item response models: an ability for each category of metrics, then one over those abilities.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from .baselines import bootstrap, plain_mean
from .diagnostics import Diagnostics
from .irt import IRTFit, check_seed, fit_irt
from .ranking import Ranking, make_ranking
from .response_model import Curve, ResponseModel
from .responses import Subjects

View = Literal["model", "attack", "defence"]
CHAINS, WARMUP, DRAWS = 32, 50, 300
IMPUTATIONS = 16
ROUNDING = 1e-4  # by which a metric may be beyond its range


VIEWS: dict[Subjects, View] = {
    "models": "model",
    "attacks": "attack",
    "implementations": "attack",
    "defences": "defence",
}


class Rule(NamedTuple):
    """How a metric becomes a response.

    Attributes:
        category: that it belongs to.
        scale: maps it into [0, 1].
        complement: the views that take 1 minus that.
        between: least and largest possible value of the metric.
    """

    category: str
    scale: Callable[[np.ndarray], np.ndarray]
    complement: tuple[View, ...]
    between: tuple[float, float] = (0, 1)


def _as_is(value: np.ndarray) -> np.ndarray:
    return value


def _capped(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda value: np.minimum(factor * value, 1.0)


def _signed(value: np.ndarray) -> np.ndarray:
    return (value + 1) / 2


CAPABILITY, EFFECTS, DISTURBANCE, COMPUTING, DEFENCE = (
    "model capability", "attack effects", "disturbance cost", "computing cost", "defence effectiveness",
)  # fmt: skip
OF_VIEW: dict[View, tuple[str, ...]] = {
    "model": (CAPABILITY, EFFECTS, DISTURBANCE),
    "attack": (EFFECTS, DISTURBANCE, COMPUTING),
    "defence": (DEFENCE,),
}
OTR = ("OTR", "model")  # in no view of models: the program has it for attacks alone
RULES: dict[str, Rule] = {
    **{symbol: Rule(CAPABILITY, _as_is, ()) for symbol in ("CA", "CF", "CC")},
    **{symbol: Rule(EFFECTS, _as_is, ("model",)) for symbol in ("MR", "OTR")},
    **{symbol: Rule(EFFECTS, _as_is, ("model",), (-1, 1)) for symbol in ("AIAC", "ARTC")},
    **{symbol: Rule(EFFECTS, lambda value: 2 * value - 1, ("attack",)) for symbol in ("ACAMC_A", "ACAMC_T")},
    "APCR": Rule(DISTURBANCE, _as_is, ("attack",)),
    **{symbol: Rule(DISTURBANCE, _capped(10.0), ("attack",)) for symbol in ("AED", "FDL", "FDH")},
    "AMD": Rule(DISTURBANCE, _capped(255 / 32), ("attack",)),
    "ADMS": Rule(DISTURBANCE, _capped(2.5), ("attack",), (0, 2)),
    "ALMS": Rule(DISTURBANCE, _capped(2.5), ("attack",), (0, inf)),
    "QN": Rule(COMPUTING, _capped(1 / 50_000), ("attack",), (0, inf)),
    "CTC": Rule(COMPUTING, lambda value: 0.9 - 0.2 * value, (), (0, 4)),  # its five levels, 0 the fastest
    **{symbol: Rule(DEFENCE, _signed, (), (-1, 1)) for symbol in ("CAV", "FV", "CV", "ARAC", "AITC")},
    **{symbol: Rule(DEFENCE, _signed, (), (-1, 1)) for symbol in ("AMDV", "AEDV", "APCRV")},
    "ADMSV": Rule(DEFENCE, _signed, (), (-2, 2)),
    "ALMSV": Rule(DEFENCE, _signed, (), (-inf, inf)),
    "MRV": Rule(DEFENCE, _signed, ("defence",), (-1, 1)),
    "CRR": Rule(DEFENCE, _as_is, ()),
    "CSR": Rule(DEFENCE, _as_is, ("defence",)),
}


def metrics_of(view: View) -> tuple[str, ...]:
    """The metrics that a view is ranked by.

    Args:
        view: of models, of attacks or of defences.

    Returns:
        Symbols of `RULES`. OTR and the computing cost are about attacks alone.
    """
    return tuple(symbol for symbol, rule in RULES.items() if rule.category in OF_VIEW[view] and (symbol, view) != OTR)


def rank_metrics(
    frame: pd.DataFrame, subjects: Subjects = "models", *, propagate: bool = False, seed: int = 0
) -> Ranking:
    """Rank the rows of a table of metrics as `rank_table` does.

    Args:
        frame: a row for each subject, by name, and a column for each metric.
        subjects: what the rows are.
        propagate: see `rank_table`.
        seed: see there.

    Raises:
        ValueError: see there.
    """
    names, metrics = list(map(str, frame.index)), list(map(str, frame.columns))
    return rank_table(frame.to_numpy(), names, metrics, view=VIEWS[subjects], propagate=propagate, seed=seed)


def rank_table(
    values: np.ndarray,
    subjects: Sequence[str],
    metrics: Sequence[str],
    *,
    view: View = "model",
    curve: Curve = "intercept",
    propagate: bool = False,
    seed: int = 0,
) -> Ranking:
    """Rank models, attacks or defences by a table of metrics, as CANARY does, and say how sure that is.

    3PL with theta ~ N(0, 1), log a ~ N(0, 1), b ~ N(0, 1), c ~ Beta(5, 17), fractional Bernoulli likelihood. Metrics
    are brought to [0, 1] by `RULES`, then max-min normalised and rounded to two decimals; one that is the same for
    every subject stays as it is. A category in which no two subjects differ, or whose metrics cancel out, is left out,
    with a note. The abilities of each category are max-min normalised, but not rounded as in the
    published program: that would make of a noise of 0.001 one of 0.01. The posterior is that of the published program,
    which draws from it by Metropolis steps; here every conditional draw is exact.

    Two departures: the program turns the levels of time round twice, so that slow attacks score higher; here fast ones
    do, as the text has it. It has no rules for defences; the text puts all their metrics into one category (section
    3.1.4), so that there is one layer, and they are max-min normalised in the direction that it gives them.

    Args:
        values: shape (N, M); NaN is missing.
        subjects: names, length N.
        metrics: symbols of `RULES`, length M; QN is the number of queries, half of forward plus backward passes (the
            forward ones where there are no others), CTC the level of time, 0 the fastest of five.
        view: whose strength is scored: of models, of attacks (without CA, CF, CC), or of defences.
        curve: "intercept" as the published program has it, "paper" as its text.
        propagate: let the uncertainty of the categories' abilities into the intervals; as published, only their
            means enter the second layer.
        seed: the same seed gives the same ranking.

    Returns:
        Scores in [0, 1], max-min normalised posterior means; the intervals are those of the draws on the same scale,
        and the bootstrap is over the metrics.

    Raises:
        ValueError: if a metric has no rule or is out of its range, or the table cannot be ranked: one subject, or none
            that differ.
    """
    values = np.asarray(values, dtype=float)
    if values.shape != (len(subjects), len(metrics)) or len(set(metrics)) < len(metrics):
        raise ValueError(f"expected shape {(len(subjects), len(set(metrics)))}, got {values.shape}")
    if len(subjects) < 2:
        alone = f"one {view}, {subjects[0]}" if subjects else "no subject"
        raise ValueError(f"{alone}: nothing to rank it against; expected at least 2 subjects")
    check_seed(seed)
    responses = scaled(values, metrics, view)
    model = ResponseModel("3pl", "bernoulli", curve, hierarchical=False)
    layers, notes = _first_layer(responses, subjects, metrics, view, model, seed)
    if len(layers) > 1:
        second = np.stack([_normalised(layer.expected, digits=15) for layer in layers], 1)
        layers.append(_fit(second, model, seed + len(layers)))
    final = layers[-1]
    if not _differs(final):
        raise ValueError(
            "expected subjects whose abilities differ by more than the error of their simulation, got none: what some "
            "metrics say for one others say for another"
        )
    draws = _propagated(layers[:-1], model, seed) if propagate and len(layers) > 1 else final.ability
    low, high = final.expected.min(), final.expected.max()
    kept = draws.reshape(-1, len(subjects))
    resampled = bootstrap(plain_mean, responses, metrics, seed=seed)
    ranking = make_ranking(
        f"CANARY, {curve} curve",
        subjects,
        (final.expected - low) / (high - low),
        (kept - low) / (high - low),
        responses,
        resampled,
        replace(final, diagnostics=_worst(layers)),
    )
    return replace(ranking, notes=(*notes, *ranking.notes))


def _first_layer(
    responses: np.ndarray, subjects: Sequence[str], metrics: Sequence[str], view: View, model: ResponseModel, seed: int
) -> tuple[list[IRTFit], list[str]]:
    """The fit of each category that tells subjects apart, and notes on those that do not or are not there.

    Max-min normalised, abilities that are equal up to the error of their simulation would fill [0, 1] with that error.
    """
    about = [RULES[metric].category for metric in metrics]
    layers, notes = [], []
    absent = [name for name in OF_VIEW[view] if name not in about]
    if absent:
        notes.append(
            f"no metric of {' or '.join(absent)}: the scores are of {' and '.join(dict.fromkeys(about))} alone"
        )
    for place, name in enumerate(dict.fromkeys(about)):
        columns = [category == name for category in about]
        chosen = responses[:, columns]
        for subject in np.flatnonzero(np.isnan(chosen).all(1)).tolist():
            which = ", ".join(metric for metric, column in zip(metrics, columns, strict=True) if column)
            raise ValueError(f"expected a value of {subjects[subject]} in {name} ({which}), got none")
        if (np.nanmax(chosen, 0) == np.nanmin(chosen, 0)).all():
            notes.append(f"left out: {name}: no two subjects differ in it")
            continue
        layer = _fit(chosen, model, seed + place)
        if _differs(layer):
            layers.append(layer)
        else:
            notes.append(f"left out: {name}: what some of its metrics say for one subject others say for another")
    if not layers:
        raise ValueError(f"expected a category of metrics that tells subjects apart, got none: {'; '.join(notes)}")
    return layers, notes


def _differs(fit: IRTFit) -> bool:
    """Whether the largest difference of two abilities is beyond three standard errors of its simulation."""
    first, last = np.argmin(fit.expected), np.argmax(fit.expected)
    by_chain = (fit.ability[:, :, last] - fit.ability[:, :, first]).mean(1)
    return fit.expected[last] - fit.expected[first] > 3 * by_chain.std(ddof=1) / np.sqrt(len(by_chain))


def scaled(values: np.ndarray, metrics: Sequence[str], view: View) -> np.ndarray:
    """Metrics as responses: scaled by `RULES`, max-min normalised and rounded to two decimals.

    Args:
        values: shape (N, M); NaN is missing.
        metrics: symbols, length M.
        view: of models, attacks or defences.

    Returns:
        Shape (N, M), in [0, 1].

    Raises:
        ValueError: if a metric has no rule, is not about what is to be scored, or has a value outside its range.
    """
    unknown = [metric for metric in metrics if metric not in RULES]
    if unknown:
        raise ValueError(f"expected metrics among {', '.join(RULES)}, got {', '.join(unknown)}")
    foreign = [metric for metric in metrics if RULES[metric].category not in OF_VIEW[view]]
    if foreign:
        about = ", ".join(dict.fromkeys(RULES[metric].category for metric in foreign))
        raise ValueError(f"expected no {', '.join(foreign)} in the view of {view}s: they are about {about}")
    values = np.asarray(values, dtype=float)
    columns = {}
    for metric, column in zip(metrics, values.T, strict=True):
        low, high = RULES[metric].between
        wrong = column[(column < low - ROUNDING) | (column > high + ROUNDING)]
        if len(wrong):
            raise ValueError(f"expected {metric} from {low:g} to {high:g}, got {wrong[0]:g} (a share is no percentage)")
        response = RULES[metric].scale(column)
        if metric.startswith("ACAMC"):  # both hang on the map of the adversarial label
            map_moved = values[:, list(metrics).index("ACAMC_A")] if "ACAMC_A" in metrics else column
            response = np.where(map_moved <= 0.5, 0.0, response)
        columns[metric] = _normalised(1 - response if view in RULES[metric].complement else response)
    return np.stack(list(columns.values()), 1)


def _normalised(value: np.ndarray, digits: int = 2) -> np.ndarray:
    """Max-min normalised and rounded; as it is where constant, but inside [0, 1]."""
    low, high = np.nanmin(value), np.nanmax(value)
    return np.clip(value, 0, 1) if low == high else np.round((value - low) / (high - low), digits)


def _fit(responses: np.ndarray, model: ResponseModel, seed: int) -> IRTFit:
    """One layer: many short chains, which the exact draws of few items allow."""
    return fit_irt(responses, model, method="fast", chains=CHAINS, warmup=WARMUP, draws=DRAWS, seed=seed)


def _propagated(layers: list[IRTFit], model: ResponseModel, seed: int) -> np.ndarray:
    """Abilities of the second layer over draws of the first, pooled: multiple imputation (Rubin 1987)."""
    generator = np.random.default_rng(seed)
    pools = [layer.ability.reshape(-1, layer.ability.shape[2]) for layer in layers]
    pooled = []
    for place in range(IMPUTATIONS):
        table = np.stack([_normalised(pool[generator.integers(len(pool))]) for pool in pools], 1)
        fit = fit_irt(table, model, method="fast", chains=8, warmup=WARMUP, draws=100, seed=seed + place)
        pooled.append(fit.ability.reshape(-1, fit.ability.shape[2]))
    return np.concatenate(pooled)


def _worst(fits: list[IRTFit]) -> Diagnostics:
    """The worst of every number over the layers; the time of all together."""
    each = [fit.diagnostics for fit in fits]
    return replace(
        each[0],
        rhat=max(one.rhat for one in each),
        bulk_ess=min(one.bulk_ess for one in each),
        tail_ess=min(one.tail_ess for one in each),
        seconds=sum(one.seconds for one in each),
    )
