"""CANARY's ranking of subjects by a table of metrics (Sun et al. 2023, section 3.3; Tables 7 and 8 give Table 9).

Item response models are fitted in two layers. The first layer gives an ability for each category of metrics. The second
layer combines these abilities into one score.
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
ANCHORS = 400  # draws of the baseline for placing a new subject
ROUNDING = 1e-4  # tolerance for metrics outside their range


VIEWS: dict[Subjects, View] = {
    "models": "model",
    "attacks": "attack",
    "implementations": "attack",
    "defences": "defence",
}


class Rule(NamedTuple):
    """Rule by which CANARY's ranking converts a metric to a response in [0, 1].

    Attributes:
        category: category of the metric.
        scale: function that maps the metric into [0, 1].
        complement: views for which a low metric is good. The response is then 1 minus the scaled metric.
        between: smallest and largest possible value of the metric.
        factor: factor by which CANARY's published program multiplies the metric. The product is capped at 1. 0 if the
            metric is not capped.
    """

    category: str
    scale: Callable[[np.ndarray], np.ndarray]
    complement: tuple[View, ...]
    between: tuple[float, float] = (0, 1)
    factor: float = 0.0


def _as_is(value: np.ndarray) -> np.ndarray:
    return value


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
OTR = ("OTR", "model")  # not for models: the published program has it for attacks only
RULES: dict[str, Rule] = {
    **{symbol: Rule(CAPABILITY, _as_is, ()) for symbol in ("CA", "CF", "CC")},
    **{symbol: Rule(EFFECTS, _as_is, ("model",)) for symbol in ("MR", "OTR")},
    **{symbol: Rule(EFFECTS, _as_is, ("model",), (-1, 1)) for symbol in ("AIAC", "ARTC")},
    **{symbol: Rule(EFFECTS, lambda value: 2 * value - 1, ("attack",)) for symbol in ("ACAMC_A", "ACAMC_T")},
    "APCR": Rule(DISTURBANCE, _as_is, ("attack",)),
    **{symbol: Rule(DISTURBANCE, _as_is, ("attack",), factor=10.0) for symbol in ("AED", "FDL", "FDH")},
    "AMD": Rule(DISTURBANCE, _as_is, ("attack",), factor=255 / 32),
    "ADMS": Rule(DISTURBANCE, _as_is, ("attack",), (0, 2), 2.5),
    "ALMS": Rule(DISTURBANCE, _as_is, ("attack",), (0, inf), 2.5),
    "QN": Rule(COMPUTING, _as_is, ("attack",), (0, inf), 1 / 50_000),
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
    """Return the symbols of the metrics that are used to rank one kind of subject.

    Args:
        view: kind of subject that is ranked: "model", "attack" or "defence".

    Returns:
        Symbols from `RULES`. OTR and the computing cost are used for attacks only.
    """
    return tuple(symbol for symbol, rule in RULES.items() if rule.category in OF_VIEW[view] and (symbol, view) != OTR)


def rank_metrics(
    frame: pd.DataFrame,
    subjects: Subjects = "models",
    *,
    curve: Curve = "intercept",
    uncapped: bool = False,
    propagate: bool = False,
    seed: int = 0,
) -> Ranking:
    """Rank the rows of a data frame of metrics with `rank_table`.

    Args:
        frame: one row per subject, indexed by name, and one column per metric.
        subjects: kind of the subjects in the rows.
        curve: "intercept" or "paper" (see `rank_table`).
        uncapped: whether to omit the caps of CANARY's published program.
        propagate: whether the intervals include the uncertainty of the categories' abilities.
        seed: random seed. The same seed gives the same ranking.

    Raises:
        ValueError: If a metric has no rule or is out of range, or if the subjects cannot be ranked.
    """
    names, metrics = list(map(str, frame.index)), list(map(str, frame.columns))
    options = {"curve": curve, "uncapped": uncapped, "propagate": propagate, "seed": seed}
    return rank_table(frame.to_numpy(), names, metrics, view=VIEWS[subjects], **options)


def rank_table(  # noqa: PLR0913 - the data by position, the choices by keyword
    values: np.ndarray,
    subjects: Sequence[str],
    metrics: Sequence[str],
    *,
    view: View = "model",
    curve: Curve = "intercept",
    uncapped: bool = False,
    propagate: bool = False,
    seed: int = 0,
) -> Ranking:
    """Rank models, attacks or defences by a table of metrics as in CANARY, with intervals for scores and ranks.

    `RULES` map the metrics to [0, 1] and cap large distortions at 1, as CANARY's published program does. The metrics
    are then max-min normalised and rounded to two decimals. A metric that is the same for every subject is not
    normalised. A category is omitted with a note if no two subjects differ in the category, or if its metrics cancel
    out. The abilities of each category are max-min normalised. In contrast to the published program, the abilities are
    not rounded, because rounding would turn noise of 0.001 into 0.01.

    The model is a 3PL with theta ~ N(0, 1), log a ~ N(0, 1), b ~ N(0, 1), c ~ Beta(5, 17) and a fractional Bernoulli
    likelihood. The posterior is that of the published program, which samples with Metropolis steps. Here every
    conditional draw is exact.

    There are two more differences from the published program:

    - The program inverts the time levels twice, so that slow attacks score higher. Here fast attacks score higher, as
      in the text of the paper.
    - The program has no rules for defences. Here the rules follow the text of the paper, which puts all metrics of
      defences into one category (section 3.1.4). Defences therefore have only one layer.

    Args:
        values: metrics, shape (N, M). NaN is missing.
        subjects: names, length N.
        metrics: symbols from `RULES`, length M. QN is the number of queries: half of forward plus backward passes, or
            the forward passes if there are no backward passes. CTC is the time level, from 0 for the fastest to 4.
        view: kind of subject that is ranked: "model", "attack" (without CA, CF and CC) or "defence".
        curve: "intercept" as in CANARY's published program, or "paper" as in the text of the paper: 3PL with a
            difficulty and D = 1.702.
        uncapped: whether to max-min normalise the metrics without the caps of the published program, as in the text.
        propagate: whether the intervals include the uncertainty of the categories' abilities. If False, only the means
            of these abilities enter the second layer, as in the published program.
        seed: random seed. The same seed gives the same ranking.

    Returns:
        The ranking. Scores are max-min normalised posterior means in [0, 1]. The intervals come from posterior draws on
        the same scale. The bootstrap is over the metrics.

    Raises:
        ValueError: If a metric has no rule or is out of range. Also if the table has only one subject, or if the
            subjects do not differ.
    """
    values = np.asarray(values, dtype=float)
    if twice := [metric for place, metric in enumerate(metrics) if metric in metrics[:place]]:
        raise ValueError(f"expected each metric once, got {twice[0]} twice")
    if values.shape != (len(subjects), len(metrics)):
        raise ValueError(f"expected values of shape ({len(subjects)}, {len(metrics)}), got shape {values.shape}")
    if len(subjects) < 2:
        alone = f"one: {subjects[0]}" if subjects else "none"
        raise ValueError(f"expected at least 2 {view}s to rank, got {alone}")
    check_seed(seed)
    responses = normalise_metrics(values, metrics, view, uncapped=uncapped)
    model = ResponseModel("3pl", "bernoulli", curve, hierarchical=False)
    layers, columns, notes = _fit_layers(responses, subjects, metrics, view, model, seed)
    notes += [] if uncapped else _capped_notes(values, metrics)
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
    names = [RULES[metrics[chosen.index(True)]].category for chosen in columns]
    categories = dict(zip(names, _second(layers[: len(names)]).T, strict=True))
    return replace(ranking, notes=(*notes, *ranking.notes), categories=categories)


def _capped_notes(values: np.ndarray, metrics: Sequence[str]) -> list[str]:
    """Return a note that lists the metrics at the cap of CANARY's published program, with the numbers of subjects."""
    cut = {
        metric: (int((RULES[metric].factor * column >= 1).sum()), int((~np.isnan(column)).sum()))
        for metric, column in zip(metrics, values.T, strict=True)
    }
    every = [metric for metric, (count, known) in cut.items() if count and count == known]
    some = [f"{metric} {count} of {known}" for metric, (count, known) in cut.items() if 0 < count < known]
    if not every and not some:
        return []
    parts = [f"at the cap for every subject, so without effect on the ranking: {', '.join(every)}"] if every else []
    parts += [f"at the cap for some subjects: {', '.join(some)}"] if some else []
    return [f"caps of the published program: {'; '.join(parts)}; `uncapped` omits them"]


def _fit_layers(
    responses: np.ndarray, subjects: Sequence[str], metrics: Sequence[str], view: View, model: ResponseModel, seed: int
) -> tuple[list[IRTFit], list[list[bool]], list[str]]:
    """Return the fits (the second layer is last), the metrics that each first-layer fit uses (as masks), and notes.

    The first layer has only the categories in which subjects differ, because max-min normalisation would otherwise
    scale simulation errors to [0, 1]. The notes list the omitted categories and the categories without metrics.
    """
    about = [RULES[metric].category for metric in metrics]
    layers, kept, notes = [], [], []
    absent = [name for name in OF_VIEW[view] if name not in about]
    if absent:
        notes.append(
            f"no metric of {' or '.join(absent)}: the scores are based on {' and '.join(dict.fromkeys(about))} only"
        )
    for place, name in enumerate(dict.fromkeys(about)):
        columns = [category == name for category in about]
        chosen = responses[:, columns]
        for subject in np.flatnonzero(np.isnan(chosen).all(1)).tolist():
            which = ", ".join(metric for metric, column in zip(metrics, columns, strict=True) if column)
            raise ValueError(f"{subjects[subject]} has a value for none of the {name} metrics ({which})")
        if (np.nanmax(chosen, 0) == np.nanmin(chosen, 0)).all():
            notes.append(f"omitted: {name}: the same for all subjects")
            continue
        layer = _fit(chosen, model, seed + place)
        if _differs(layer):
            layers.append(layer)
            kept.append(columns)
        else:
            notes.append(f"omitted: {name}: its metrics contradict one another")
    if not layers:
        raise ValueError(f"the subjects differ in no category of metrics: {'; '.join(notes)}")
    if len(layers) > 1:
        layers.append(_fit(_second(layers), model, seed + len(layers)))
    if not _differs(layers[-1]):
        raise ValueError(
            "the subjects cannot be ranked, because the metrics contradict one another and the scores differ by "
            "less than the simulation error"
        )
    return layers, kept, notes


def _second(layers: Sequence[IRTFit]) -> np.ndarray:
    return np.stack([_normalised(layer.expected, digits=15) for layer in layers], 1)


def _differs(fit: IRTFit) -> bool:
    """Return whether the highest and the lowest ability differ by more than three standard errors of the simulation."""
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
    uncapped: bool = False,
    seed: int = 0,
) -> Placement:
    """Place a new subject among the subjects of a table of metrics, which are ranked as by `rank_table`.

    The item response models of both layers are fitted to the table without the new subject (see `Anchor`). The new
    subject's metrics are scaled to the range of each metric in the table, and its category abilities to the range of
    the table's subjects. Values outside the range are clipped, with a note. A missing metric, or a category without any
    metric, counts as a missing response.

    Args:
        values: metrics of the baseline, shape (N, M). NaN is missing.
        subjects: names, length N.
        metrics: symbols from `RULES`, length M.
        newcomer: metrics of the new subject, shape (M,). NaN is missing.
        name: name of the new subject.
        view: kind of subject that is ranked: "model", "attack" or "defence".
        curve: "intercept" or "paper" (see `rank_table`).
        uncapped: whether to omit the caps of CANARY's published program.
        seed: random seed. The same seed gives the same placement.

    Returns:
        The placement, with scores on the scale of `rank_table`. The new subject's score may lie outside [0, 1].

    Raises:
        ValueError: If the table cannot be ranked, or if the new subject has none of the metrics.
    """
    from .anchor import Anchor, joint_draws

    values, row = np.asarray(values, dtype=float), np.asarray(newcomer, dtype=float)
    if name in subjects:
        raise ValueError(f"expected a new name, got {name}, which is a subject of the baseline")
    if row.shape != (len(metrics),) or np.isnan(row).all():
        raise ValueError(f"expected a value of at least one of {', '.join(metrics)}, got {row!r:.60}")
    responses = normalise_metrics(values, metrics, view, uncapped=uncapped)
    table = _directed(np.vstack([values, row]), metrics, view, uncapped)
    answers = np.array([_normalised(column[-1:], among=column[:-1])[0] for column in table.T])
    beyond = [
        metric
        for metric, column in zip(metrics, table.T, strict=True)
        if column[-1] < np.nanmin(column[:-1]) or column[-1] > np.nanmax(column[:-1])
    ]
    model = ResponseModel("3pl", "bernoulli", curve, hierarchical=False)
    layers, columns, about = _fit_layers(responses, subjects, metrics, view, model, seed)
    about += [] if uncapped else _capped_notes(np.vstack([values, row]), metrics)
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
        raise ValueError(f"{name} cannot be placed: in each metric that it has, all subjects of the baseline are equal")
    anchor = Anchor(final, given, draws=ANCHORS, seed=seed)
    log = anchor.log_likelihood(last)
    low, high = final.expected.min(), final.expected.max()
    seen = ~np.isnan(row)
    both = np.vstack([responses, answers])[:, seen]
    notes = (*about, f"{seen.sum()} of {len(metrics)} metrics")
    if beyond:
        notes += (f"outside the range of the baseline and clipped: {', '.join(beyond)}",)
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


def normalise_metrics(values: np.ndarray, metrics: Sequence[str], view: View, *, uncapped: bool = False) -> np.ndarray:
    """Convert metrics to responses in [0, 1]: scaled by `RULES`, max-min normalised and rounded to two decimals.

    Args:
        values: metrics, shape (N, M). NaN is missing.
        metrics: symbols, length M.
        view: kind of subject that is ranked: "model", "attack" or "defence".
        uncapped: whether to omit the caps of CANARY's published program.

    Returns:
        Responses, shape (N, M), in [0, 1].

    Raises:
        ValueError: If a metric has no rule, is not part of the view, or is out of range.
    """
    unknown = [metric for metric in metrics if metric not in RULES]
    if unknown:
        raise ValueError(f"expected metrics among {', '.join(RULES)}, got {', '.join(unknown)}")
    foreign = [metric for metric in metrics if RULES[metric].category not in OF_VIEW[view]]
    if foreign:
        about = ", ".join(dict.fromkeys(RULES[metric].category for metric in foreign))
        raise ValueError(f"{', '.join(foreign)} cannot be used to rank {view}s, because they are metrics of {about}")
    directed = _directed(np.asarray(values, dtype=float), metrics, view, uncapped)
    return np.stack([_normalised(column) for column in directed.T], 1)


def _directed(values: np.ndarray, metrics: Sequence[str], view: View, uncapped: bool) -> np.ndarray:
    """Return the metrics scaled by `RULES`, shape (N, M). Higher values are better for the ranked subjects."""
    columns = []
    for metric, column in zip(metrics, values.T, strict=True):
        low, high = RULES[metric].between
        wrong = column[(column < low - ROUNDING) | (column > high + ROUNDING)]
        if len(wrong):
            raise ValueError(
                f"expected {metric} from {low:g} to {high:g}, got {wrong[0]:g} (use proportions, not percentages)"
            )
        rule = RULES[metric]
        response = np.minimum(rule.factor * column, 1.0) if rule.factor and not uncapped else rule.scale(column)
        if metric.startswith("ACAMC"):  # both depend on the map of the adversarial label
            map_moved = values[:, list(metrics).index("ACAMC_A")] if "ACAMC_A" in metrics else column
            response = np.where(map_moved <= 0.5, 0.0, response)
        columns.append(1 - response if view in RULES[metric].complement else response)
    return np.stack(columns, 1)


def _normalised(value: np.ndarray, digits: int = 2, among: np.ndarray | None = None) -> np.ndarray:
    """Scale values by the minimum and maximum of `among` (or of the values themselves), round, and clip to [0, 1].

    If the minimum equals the maximum, values are only clipped.
    """
    known = value if among is None else among
    low, high = np.nanmin(known), np.nanmax(known)
    return np.clip(value if low == high else np.round((value - low) / (high - low), digits), 0, 1)


def _fit(responses: np.ndarray, model: ResponseModel, seed: int) -> IRTFit:
    """Fit one layer with many short chains, which suffice because there are few items and every draw is exact."""
    return fit_irt(responses, model, method="fast", chains=CHAINS, warmup=WARMUP, draws=DRAWS, seed=seed)


def _propagated(layers: list[IRTFit], model: ResponseModel, seed: int) -> np.ndarray:
    """Return draws of second-layer abilities that include the uncertainty of the first layer.

    The second layer is fitted to several posterior draws of the first layer, and the results are pooled (multiple
    imputation, Rubin 1987).
    """
    generator = np.random.default_rng(seed)
    pools = [layer.ability.reshape(-1, layer.ability.shape[2]) for layer in layers]
    pooled = []
    for place in range(IMPUTATIONS):
        table = np.stack([_normalised(pool[generator.integers(len(pool))]) for pool in pools], 1)
        fit = fit_irt(table, model, method="fast", chains=8, warmup=WARMUP, draws=100, seed=seed + place)
        pooled.append(fit.ability.reshape(-1, fit.ability.shape[2]))
    return np.concatenate(pooled)


def _worst(fits: list[IRTFit]) -> Diagnostics:
    """Return the worst value of each diagnostic over the layers, and the total time."""
    each = [fit.diagnostics for fit in fits]
    return replace(
        each[0],
        rhat=max(one.rhat for one in each),
        bulk_ess=min(one.bulk_ess for one in each),
        tail_ess=min(one.tail_ess for one in each),
        seconds=sum(one.seconds for one in each),
    )
