"""Table of the effects of a defence: compares the defended with the undefended model, when clean and under attack."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import InvalidInput, UnknownName, Unsupported
from ...intervals import difference_bounds, discordant_correlation
from ...metrics import METRICS, record_of
from ..finding import Finding, note
from ..metric_names import (
    base_symbol,
    facts_of,
    is_parametrised,
    metric_parameter,
    needs_confidences,
    resolve_symbols,
    unknown_metric,
)
from ..statistics.bootstrap import Estimate, Replicates, bootstrap_means, draw_macro_f1, draws_of
from ..store.columns import logits_of
from ..store.results import CleanResult, Results, RunResult, images_text, read_outcomes
from ..store.shown import rate_when_shown
from ..store.transfers import read_shown
from .estimates import NOTHING, Counts, estimate_draws, estimate_share, mean_draws, resamples
from .groups import TableGroup, group_cells, plain_setting_of
from .table import Table, TableRow

_RATE = "MR"  # the only rate whose difference is a metric of a defence
_LABELS = ("defended", "examples", "made_on", "norm", "epsilon", "targeted", "setting", "images", "violations")
_CLEAN = {"examples": "clean", "made_on": "", "norm": "", "epsilon": math.nan, "targeted": False, "setting": ""}


class _Pair(NamedTuple):
    """Results of the undefended and the defended model on the same images: clean images, or examples of an attack.

    Args:
        logits: logits of the two models, (n, K) each.
        counts: whether each image counts in metrics that need the outputs of both models, (n,) bool.
        columns: values of metrics of a single model, by symbol, for each of the two models. Empty on clean images.
        most: fooled rates of the two models, (n,) each, in which invalid results count as fooled.
        invalid: number of invalid results.
        by_majority: kind of attacks for which the majority of a random model's samples decides whether an image is
            fooled. "" if no such attack is included.
        is_clean: whether the images are clean.
    """

    logits: tuple[Tensor, Tensor]
    counts: np.ndarray
    columns: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]] = ({}, {})
    most: tuple[np.ndarray, ...] = ()
    invalid: int = 0
    by_majority: str = ""
    is_clean: bool = False


class _Row(NamedTuple):
    """Data of a table row. `meaningless` are the symbols of metrics that are undefined for the row."""

    labels: dict[str, Any]
    repeats: list[_Pair]
    truth: Tensor
    meaningless: frozenset[str]


def build_defence(
    folder: str | PathLike[str] | Results,
    original: str,
    defended: str,
    *,
    metrics: Sequence[str] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Table:
    """Build the table of a defence: the defended model compared with the undefended model.

    The first row, on clean images, shows the cost of the defence. Each attack that ran on both models has a row with
    `made_on` "own": each model is evaluated on examples that were made on this model. An attack has a second row, with
    `made_on` "original", if the examples made on the undefended model were also tested on the defended model
    (`--examples original`).

    CAV, CRR and other metrics of both models' outputs are over two kinds of images: those misclassified when clean, and
    those whose examples are valid on both models. MRV, AMDV and similar metrics are differences of the two models'
    means, each over the images of that model. Rows with `made_on` "original" have only MRV. There, the rate of the
    defended model is over images that both models classify correctly when clean. Repeats with other seeds are paired by
    seed and averaged.

    Labels: `defended` (if there are several), `examples` ("clean" or the implementation), `made_on`, `norm`, `epsilon`,
    `targeted`, `setting`, `images` (number of images in the metrics), `violations` (invalid results of both models).

    Args:
        folder: path of a results folder, or its `Results`.
        original: name of the undefended model.
        defended: name of the defended model. A pattern with `*` selects all matching models except `original`.
        metrics: symbols of metrics of a defence; None for all that the folder has.
        bootstrap: number of bootstrap replicates over the images; 0 for no intervals.
        seed: random seed of the bootstrap.

    Raises:
        UnknownName: if there is no such model or metric.
        Unsupported: if a metric is not a metric of a defence.
        InvalidInput: if the two models were not evaluated on the same labelled images.
        Unavailable: if there is no such folder, or the folder has no run.
    """
    asked = _choose(metrics)
    outcomes = folder if isinstance(folder, Results) else _read_pair(folder, original, defended)
    names = _defended_names(outcomes, original, defended)
    rows: list[_Row] = []
    for name in names:
        pairs = _find_pairs(outcomes, original, name)
        for pair in pairs:
            images = f"data={images_text(pair[0].subject)}" if len(pairs) > 1 else ""
            for row in _rows_of(outcomes, pair):
                setting = ", ".join(filter(None, (images, row.labels["setting"])))
                rows.append(row._replace(labels=row.labels | {"defended": name, "setting": setting}))
    counts = resamples(bootstrap, seed)
    estimates = [
        {symbol: _estimate(symbol, row, counts, has_interval=bootstrap > 0) for symbol in asked} for row in rows
    ]
    kept = [symbol for symbol in asked if metrics is not None or any(each[symbol].n for each in estimates)]
    lines = []
    for row, each in zip(rows, estimates, strict=True):
        labels = row.labels if len(names) > 1 else row.labels | {"defended": ""}
        lines.append(TableRow({name: labels[name] for name in _LABELS}, {symbol: each[symbol] for symbol in kept}))
    findings = [*outcomes.findings, *_how_judged(outcomes, (original, *names), rows if "MRV" in kept else [])]
    if "MRV" in kept and any(row.labels["violations"] for row in rows):
        ends = ", and as 1 in the upper bounds of their intervals" if bootstrap else ""
        sentence = "invalid results count as 0 in the rates whose difference is {symbols}{ends}"
        findings.append(note("violations", sentence, symbols="MRV", ends=ends))
    return Table("defence", _LABELS, tuple(kept), tuple(lines), tuple(findings))


def _how_judged(outcomes: Results, names: Sequence[str], rows: Sequence[_Row]) -> Iterator[Finding]:
    """Yield notes on how this table counts samples of random models, because other tables count them differently."""
    drawn = [name for name in dict.fromkeys(names) if name in outcomes.judged_by_draws]
    if not drawn:
        return
    sentence = (
        "{models}: CAV and similar metrics use the majority of the model's samples; MRV, MR and RA use the "
        "rate over its samples"
    )
    yield note("majority", sentence, models=", ".join(drawn))
    exceptions: dict[str, set[str]] = {}
    for row in rows:
        exceptions.setdefault(row.labels["defended"], set()).update(pair.by_majority for pair in row.repeats)
    for name, places in exceptions.items():
        for where in sorted(places - {""}):
            sentence = "MRV of {subject} uses the majority of the samples {where}"
            yield note("majority-rate", sentence, subject=name, where=where)


def _choose(symbols: Sequence[str] | None) -> tuple[str, ...]:
    every = tuple(symbol for symbol, record in METRICS.items() if record.group.startswith("defence"))
    chosen = every if symbols is None else resolve_symbols(symbols)
    for symbol in chosen:
        if record_of(symbol) is None:
            raise unknown_metric(symbol)
        if is_parametrised(symbol):
            metric_parameter(symbol)
        if base_symbol(symbol) not in every:
            raise Unsupported(f"{symbol} is a metric of one model; use it without --defence")
    return chosen


def _read_pair(folder: str | PathLike[str], original: str, defended: str) -> Results:
    return read_outcomes(folder, keep_logits=lambda each: "*" in defended or each.is_called((original, defended)))


def _defended_names(outcomes: Results, original: str, defended: str) -> list[str]:
    if "*" not in defended:
        return [defended]
    known = list(dict.fromkeys(each.name for key, each in outcomes.subjects.items() if key in outcomes.clean))
    names = [name for name in known if name != original and fnmatch(name, defended)]
    if not names:
        raise UnknownName("model", defended, known)
    return names


def _find_pairs(outcomes: Results, original: str, defended: str) -> list[tuple[CleanResult, CleanResult]]:
    """Return the clean results of the two models, for each set of images on which both models were evaluated."""
    known = [outcomes.clean[key] for key in outcomes.subjects if key in outcomes.clean]
    sides = [[each for each in known if each.subject.name == name] for name in (original, defended)]
    for name, side in zip((original, defended), sides, strict=True):
        if not side:
            raise UnknownName("model", name, {each.subject.name for each in known})
    same = [(a, b) for a in sides[0] for b in sides[1] if _of_same_images(a, b)]
    if not same:
        seen = ["; ".join(images_text(each.subject) for each in side) for side in sides]
        raise InvalidInput(
            f"{original} and {defended} have no images in common ({seen[0]} and {seen[1]}): "
            "evaluate both on the same images"
        )
    for a, b in same:
        confident = a.has_confidences and b.has_confidences
        if a.logits.shape != b.logits.shape and confident and not outcomes.has_detector(b.subject):
            shapes = f"{a.logits.shape[1]} and {b.logits.shape[1]}"
            raise InvalidInput(f"expected two models with the same classes, got {shapes} classes")
    return same


def _of_same_images(a: CleanResult, b: CleanResult) -> bool:
    """Whether two models were evaluated on the same images. If the image sizes differ, the images' names decide."""
    labels, names = (np.array_equal(a.columns[name], b.columns[name]) for name in ("label", "image"))
    same = a.subject.data_digest == b.subject.data_digest or (a.subject.data == b.subject.data and names)
    return labels and same


def _rows_of(outcomes: Results, models: tuple[CleanResult, CleanResult]) -> Iterator[_Row]:
    """Yield the row on clean images, then a row for each attack and each kind of examples (own, original)."""
    original, defended = models
    truth, images = torch.tensor(original.columns["label"]), original.subject.images
    meaningless = set()
    if original.logits.shape != defended.logits.shape and outcomes.has_detector(defended.subject):
        meaningless = {"FV"}  # the detector's class is not a class of the data
    if meaningless or not all(each.has_confidences for each in models):
        meaningless |= {symbol for symbol in METRICS if needs_confidences(symbol)}
    clean = _Pair(_same_width(original.logits, defended.logits), np.ones(images, bool), is_clean=True)
    yield _Row(_CLEAN | {"images": images, "violations": 0}, [clean], truth, frozenset(meaningless))
    for group, made_on, repeats in _attacks(outcomes, models):
        labels = {name: group.labels[name] for name in ("norm", "epsilon", "targeted", "setting")}
        labels |= {"examples": group.labels["implementation"], "made_on": made_on}
        labels |= {"images": sum(int(pair.counts.sum()) for pair in repeats)}
        labels |= {"violations": sum(pair.invalid for pair in repeats)}
        yield _Row(labels, repeats, truth, frozenset(meaningless))


def _attacks(
    outcomes: Results, models: tuple[CleanResult, CleanResult]
) -> Iterator[tuple[TableGroup, str, list[_Pair]]]:
    """Yield the attacks on both models, paired by seed ("own"), then attacks with transferred examples ("original")."""
    keys = [each.subject.key for each in models]
    mine = tuple(each for each in outcomes.done if each.cell.subject.key in keys)
    groups = group_cells(replace(outcomes, done=mine, failed=()), "attacks")
    runs = [{(each.cell.subject.key, each.cell.seed): each for each in group.outcomes} for group in groups]
    plain = {(plain_setting_of(each.cell), *place): each for of in runs for place, each in of.items()}
    for group, of in zip(groups, runs, strict=True):
        met = []
        for after in (each for (key, _), each in of.items() if key == keys[1]):  # perhaps several numbers of samples
            place = keys[0], after.cell.seed
            before = of.get(place) or plain.get((plain_setting_of(after.cell), *place))
            met += [_attacked(outcomes, before, after)] if before is not None else []
        if met:
            yield group, "own", met
    for group, of in zip(groups, runs, strict=True):
        seen = [_shown(outcomes, each, models[1]) for (key, _), each in of.items() if key == keys[0]]
        if any(seen):
            yield group, "original", [pair for pair in seen if pair]


def _attacked(outcomes: Results, original: RunResult, defended: RunResult) -> _Pair:
    """Return the results of two runs, in which each model is attacked with its own examples."""
    both = (original, defended)
    return _Pair(
        _same_width(*(_logits(outcomes, each) for each in both)),
        _counting(original) & _counting(defended),
        (original.columns, defended.columns),
        tuple(_most(each) for each in both if _RATE in each.columns),
        sum(int(each.results.invalid.sum()) for each in both),
        original.results.by_majority or defended.results.by_majority,
    )


def _shown(outcomes: Results, original: RunResult, defended: CleanResult) -> _Pair | None:
    """Return the results of both models on the undefended model's examples.

    None if the defended model was not tested.
    """
    shown = read_shown(outcomes.store, original.cell.key, defended.subject.key)
    if shown is None:
        return None
    logits, answered = _finite(shown.logits)
    shown = shown._replace(logits=logits)
    counts = _counting(original) & answered
    pair = _Pair(
        _same_width(_logits(outcomes, original), logits),
        counts,
        invalid=int((original.results.invalid | ~answered).sum()),
    )
    if _RATE not in original.columns:
        return pair
    fooled, by_majority = rate_when_shown(outcomes, original, defended, shown)
    rate = np.where(counts | np.isnan(fooled), fooled, 0.0)
    rate[~original.results.attacked] = np.nan
    most = np.where((original.results.undecided_fooled | ~answered) & ~np.isnan(rate), 1.0, rate)
    rates = ({_RATE: original.columns[_RATE]}, {_RATE: rate})
    return pair._replace(columns=rates, most=(_most(original), most), by_majority=by_majority)


def _most(outcome: RunResult) -> np.ndarray:
    """Return the fooled rate of each image, (n,), in which invalid results count as fooled."""
    return outcome.results.at_most(outcome.columns[_RATE].astype(float), METRICS[_RATE].invalid)


def _counting(outcome: RunResult) -> np.ndarray:
    """Return whether each image has a valid example or is misclassified when clean, (n,) bool."""
    return outcome.usable | ~outcome.columns["attacked"]


def _logits(outcomes: Results, outcome: RunResult) -> Tensor:
    """Return the logits of a run on the examples, (n, K), from its record if necessary. Non-finite rows become 0."""
    if outcome.adv_logits is not None:
        return _finite(outcome.adv_logits)[0]
    return _finite(logits_of(outcomes.store.read("cells", outcome.cell.key).table, "adv_logits"))[0]


def _finite(logits: Tensor) -> tuple[Tensor, np.ndarray]:
    """Set rows of logits (n, K) that are not finite to 0.

    Returns:
        The logits; and whether each row was finite, (n,) bool.
    """
    finite = logits.isfinite().all(1)
    return logits if finite.all() else logits.masked_fill(~finite[:, None], 0.0), finite.numpy()


def _same_width(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Pad the logits of two models to the larger number of classes.

    The numbers can differ because a model that returns only labels may never predict the last classes.
    """
    width = max(first.shape[1], second.shape[1])

    def widened(logits: Tensor) -> Tensor:
        missing = width - logits.shape[1]
        least = logits.amin(1, keepdim=True) - 1
        return torch.cat([logits, least.expand(-1, missing)], 1) if missing else logits

    return widened(first), widened(second)


def _estimate(symbol: str, row: _Row, counts: Counts, *, has_interval: bool) -> Estimate:
    """Estimate the mean of a metric over the repeats.

    Rates, and differences of rates, have intervals of their own kind.
    """
    if base_symbol(symbol) in row.meaningless:
        return NOTHING
    weights = counts(len(row.truth))
    estimate = estimate_draws(mean_draws([[_draw(symbol, pair, row.truth, weights) for pair in row.repeats]]))
    kind = facts_of(symbol).kind
    sides = [_rates(symbol, pair, row.truth) for pair in row.repeats] if kind in ("share", "difference") else []
    sides = [each for each in sides if each]
    if not sides or not has_interval:
        return estimate
    plus, minus = (
        estimate_share([[each[side][0] for each in sides]], [[each[side][1] for each in sides]]) for side in (0, 1)
    )
    if kind == "share":
        return estimate._replace(low=plus.low, high=plus.high)
    alike = 0.0 if symbol == "MRV" else discordant_correlation(plus.value, minus.value)
    low, high = difference_bounds(plus[:3], minus[:3], alike)
    return estimate._replace(low=low, high=high)


def _draw(symbol: str, pair: _Pair, truth: Tensor, counts: np.ndarray) -> Replicates:
    """Return the bootstrap replicates of a metric of two models on the same images; NaN if the metric is undefined."""
    record = facts_of(symbol)
    options = metric_parameter(symbol) if is_parametrised(symbol) else {}
    given = {"labels": truth}
    for name, logits in zip(("logits", "defended_logits"), pair.logits, strict=True):
        given[name] = logits
        if not pair.is_clean:
            given[name.replace("logits", "adv_logits")] = logits
    if record.of_images and {*record.arguments} <= {*given}:
        values = record.function(**{name: given[name] for name in record.arguments}, **options, reduction="none")
        return bootstrap_means(counts, np.where(pair.counts, values.double().numpy(), np.nan)[:, None])[0]
    if record.base == "CF":
        labels, drawn = truth.numpy()[pair.counts], counts[:, pair.counts]
        scores = [draw_macro_f1(drawn, labels, each.argmax(1).numpy()[pair.counts]) for each in pair.logits]
        return draws_of(scores[1] - scores[0], len(labels))
    if record.base and all(record.base in columns for columns in pair.columns):
        columns = np.stack([columns[record.base].astype(float) for columns in pair.columns], axis=1)
        before, after = bootstrap_means(counts, columns)
        return draws_of(after.ratio - before.ratio, min(before.n, after.n))
    return draws_of(np.full(len(counts), np.nan), 0)


def _rates(symbol: str, pair: _Pair, truth: Tensor) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return two rates of each image whose means are subtracted: the metric is the first mean minus the second mean.

    Each rate is a pair of arrays (n,): the values, and their upper bounds. The result is empty if a model has no rate.
    """
    if symbol == "MRV":
        rates = [columns[_RATE].astype(float) for columns in pair.columns if _RATE in columns]
        return tuple(zip(rates, pair.most, strict=True))[::-1] if len(rates) == 2 else ()
    original, defended = ((logits.argmax(1) == truth).numpy() for logits in pair.logits)
    gained, lost = (np.where(pair.counts, each, np.nan) for each in (defended & ~original, original & ~defended))
    plus, minus = {"CRR": (gained, lost), "CSR": (lost, gained), "CAV": (gained, lost)}[symbol]
    return (plus, plus), (minus, minus)
