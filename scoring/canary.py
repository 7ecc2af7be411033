"""CANARY's ranking of a table of metrics (Sun et al. 2023, section 3.3): Tables 7 and 8 to Table 9.

Two layers of item response models: an ability for each category of metrics, then one over those abilities.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from .baselines import bootstrap, mean_response
from .diagnostics import Diagnostics
from .irt import IRTFit, check_seed, fit_irt
from .placement import Placement
from .ranking import Ranking, make_ranking
from .response_model import Curve, ResponseModel
from .responses import Subjects

View = Literal["model", "attack", "defence"]
CHAINS, WARMUP, DRAWS = 32, 50, 300
IMPUTATIONS = 16
ANCHORS = 400  # draws of the baseline that a newcomer is placed by
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
    responses = normalise_metrics(values, metrics, view)
    model = ResponseModel("3pl", "bernoulli", curve, hierarchical=False)
    layers, _, notes = _fit_layers(responses, subjects, metrics, view, model, seed)
    final = layers[-1]
    draws = _propagated(layers[:-1], model, seed) if propagate and len(layers) > 1 else final.ability
    low, high = final.expected.min(), final.expected.max()
    kept = draws.reshape(-1, len(subjects))
    resampled = bootstrap(mean_response, responses, metrics, seed=seed)
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


def _fit_layers(
    responses: np.ndarray, subjects: Sequence[str], metrics: Sequence[str], view: View, model: ResponseModel, seed: int
) -> tuple[list[IRTFit], list[list[bool]], list[str]]:
    """The fits of both layers, the last one the second, if there are two; the metrics of each in the first; notes.

    The first layer has the categories that tell subjects apart; notes are on those that do not or are absent.
    Max-min normalised, abilities that are equal up to the error of their simulation would fill [0, 1] with that error.
    """
    about = [RULES[metric].category for metric in metrics]
    layers, kept, notes = [], [], []
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
            kept.append(columns)
        else:
            notes.append(f"left out: {name}: what some of its metrics say for one subject others say for another")
    if not layers:
        raise ValueError(f"expected a category of metrics that tells subjects apart, got none: {'; '.join(notes)}")
    if len(layers) > 1:
        layers.append(_fit(_second(layers), model, seed + len(layers)))
    if not _differs(layers[-1]):
        raise ValueError(
            "expected subjects whose abilities differ by more than the error of their simulation, got none: what some "
            "metrics say for one others say for another"
        )
    return layers, kept, notes


def _second(layers: Sequence[IRTFit]) -> np.ndarray:
    """The responses of the second layer: the abilities of the first, max-min normalised."""
    return np.stack([_normalised(layer.expected, digits=15) for layer in layers], 1)


def _differs(fit: IRTFit) -> bool:
    """Whether the largest difference of two abilities is beyond three standard errors of its simulation."""
    first, last = np.argmin(fit.expected), np.argmax(fit.expected)
    by_chain = (fit.ability[:, :, last] - fit.ability[:, :, first]).mean(1)
    return fit.expected[last] - fit.expected[first] > 3 * by_chain.std(ddof=1) / np.sqrt(len(by_chain))


def place_row(  # noqa: PLR0913 - the data by position, the choices by keyword
    values: np.ndarray,
    subjects: Sequence[str],
    metrics: Sequence[str],
    newcomer: np.ndarray,
    name: str,
    *,
    view: View = "model",
    curve: Curve = "intercept",
    seed: int = 0,
) -> Placement:
    """Place a newcomer among the subjects of a table of metrics, as `rank_table` ranks them.

    Both layers are fitted to the table alone (`Anchor`). A metric of the newcomer is brought to the range that the
    table gives it, an ability of a category to that of the table's subjects; beyond it counts as its end, and a note
    says so. A metric that the newcomer lacks is missing, and so is a category of which it has none.

    Args:
        values: of the baseline, shape (N, M); NaN is missing.
        subjects: names, length N.
        metrics: symbols of `RULES`, length M.
        newcomer: shape (M,); NaN is missing.
        name: of the newcomer.
        view: see `rank_table`.
        curve: see there.
        seed: see there.

    Returns:
        Scores on the scale of `rank_table`, on which the newcomer may lie outside [0, 1].

    Raises:
        ValueError: as `rank_table`, or if the newcomer has none of the metrics.
    """
    from .anchor import Anchor, joint_draws

    values, row = np.asarray(values, dtype=float), np.asarray(newcomer, dtype=float)
    if row.shape != (len(metrics),) or np.isnan(row).all() or name in subjects:
        raise ValueError(f"expected another subject with some of {', '.join(metrics)}, got {name}: {row!r:.60}")
    responses = normalise_metrics(values, metrics, view)
    table = _directed(np.vstack([values, row]), metrics, view)
    answers = np.array([_normalised(column[-1:], among=column[:-1])[0] for column in table.T])
    beyond = [
        metric
        for metric, column in zip(metrics, table.T, strict=True)
        if column[-1] < np.nanmin(column[:-1]) or column[-1] > np.nanmax(column[:-1])
    ]
    model = ResponseModel("3pl", "bernoulli", curve, hierarchical=False)
    layers, columns, about = _fit_layers(responses, subjects, metrics, view, model, seed)
    final, given = layers[-1], responses[:, columns[0]]
    last = answers[columns[0]]
    if len(layers) > 1:
        given, expected = _second(layers[:-1]), []
        for layer, chosen in zip(layers[:-1], columns, strict=True):
            anchor = Anchor(layer, responses[:, chosen], draws=ANCHORS, seed=seed)
            known = not np.isnan(answers[chosen]).all()
            expected.append(anchor.expect(anchor.log_likelihood(answers[chosen])) if known else np.nan)
        pairs = zip(expected, layers[:-1], strict=True)
        last = np.array([_normalised(np.array([one]), 15, layer.expected)[0] for one, layer in pairs])
    if np.isnan(last).all():
        raise ValueError(f"expected a metric of {name} that tells the subjects of the baseline apart, got none")
    anchor = Anchor(final, given, draws=ANCHORS, seed=seed)
    log = anchor.log_likelihood(last)
    low, high = final.expected.min(), final.expected.max()
    seen = ~np.isnan(row)
    both = np.vstack([responses, answers])[:, seen]
    notes = (*about, f"{seen.sum()} of {len(metrics)} metrics")
    if beyond:
        notes += (f"beyond all subjects of the baseline, counted as its end: {', '.join(beyond)}",)
    ranking = make_ranking(
        f"CANARY, {curve} curve, items anchored",
        (*subjects, name),
        (np.append(final.expected, anchor.expect(log)) - low) / (high - low),
        (joint_draws(anchor, log, 1.0, 1.0) - low) / (high - low),
        both,
        bootstrap(mean_response, both, [metric for metric, has in zip(metrics, seen, strict=True) if has], seed=seed),
        replace(final, diagnostics=_worst(layers)),
    )
    problem = ranking.diagnostics.problem if ranking.diagnostics else None
    notes = (*([problem] if problem else []), *notes)
    return Placement(name, replace(ranking, notes=notes), int(seen.sum()), 0, notes)


def normalise_metrics(values: np.ndarray, metrics: Sequence[str], view: View) -> np.ndarray:
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
    return np.stack([_normalised(column) for column in _directed(np.asarray(values, dtype=float), metrics, view).T], 1)


def _directed(values: np.ndarray, metrics: Sequence[str], view: View) -> np.ndarray:
    """Metrics scaled by `RULES`, more being better for the view, shape (N, M)."""
    columns = []
    for metric, column in zip(metrics, values.T, strict=True):
        low, high = RULES[metric].between
        wrong = column[(column < low - ROUNDING) | (column > high + ROUNDING)]
        if len(wrong):
            raise ValueError(f"expected {metric} from {low:g} to {high:g}, got {wrong[0]:g} (a share is no percentage)")
        response = RULES[metric].scale(column)
        if metric.startswith("ACAMC"):  # both hang on the map of the adversarial label
            map_moved = values[:, list(metrics).index("ACAMC_A")] if "ACAMC_A" in metrics else column
            response = np.where(map_moved <= 0.5, 0.0, response)
        columns.append(1 - response if view in RULES[metric].complement else response)
    return np.stack(columns, 1)


def _normalised(value: np.ndarray, digits: int = 2, among: np.ndarray | None = None) -> np.ndarray:
    """Max-min normalised and rounded; as it is where constant; inside [0, 1]. The range is that `among` others."""
    known = value if among is None else among
    low, high = np.nanmin(known), np.nanmax(known)
    return np.clip(value if low == high else np.round((value - low) / (high - low), digits), 0, 1)


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
