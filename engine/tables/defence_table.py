"""What a defence changes: two models of a folder on the same images, clean and under the attacks that both met."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import InvalidInput, UnknownName, Unsupported
from ...intervals import clustered_interval, difference_ends, discordant_correlation
from ...metrics import METRICS
from ..metric_names import needs_confidences, resolve_symbols, unknown_metric
from ..statistics.bootstrap import Draws, Estimate, draw_macro_f1, draw_means, draws_of, interval, resample
from ..store.columns import logits_of
from ..store.outcomes import Clean, Outcome, Outcomes, images_text, read_outcomes
from ..store.stored_columns import join_columns
from ..store.transfers import Transferred, read_shown
from .groups import Group, group_cells, model_names, plain_setting_of
from .table import Table, TableRow, aggregate

_MOST = "MR, violations as fooled"  # what MRV may be made of at most, beside "MR", where they count as 0
_TARGETED = "under targeted attacks"  # an untargeted rate of a random model there is that of its median draw
_UNKNOWN = "on examples of the original: records of an earlier version lack the share of them"
_LABELS = ("defended", "examples", "made_on", "norm", "epsilon", "targeted", "setting", "images", "violations")


class _Side(NamedTuple):
    """One model's outputs on a set of examples, and which of them count."""

    logits: Tensor
    counts: np.ndarray


class _Repeat(NamedTuple):
    """Both models on the examples of one attack with one seed, and each one's values of image metrics by symbol."""

    sides: tuple[_Side, _Side]
    values: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]
    violations: int
    by_majority: str = ""  # where the rate of a random model is no share of its draws


def build_defence(
    folder: str | Path | Outcomes,
    original: str,
    defended: str,
    *,
    metrics: Sequence[str] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Table:
    """The table of a defence: the defended model against the original one.

    The first row is on the clean images: what the defence costs. Then, for each attack that was run on both models, one
    on the examples made on each (`made_on` is "own"), and one for each whose examples of the original the defended
    model was shown ("original": `--examples original`). CAV, CRR... are of those, over the images that are wrong when
    clean or whose examples keep the rules on both. MRV, AMDV... are differences of the two models' means, each over its
    images: with examples of the original only MRV, the defended one's rate being over the images that both get right
    when clean. Repeats with other seeds are paired and averaged. Labels: `defended` (if there are several), `examples`
    ("clean" or the implementation), `made_on`, `norm`, `epsilon`, `targeted`, `setting`, `images` (that count),
    `violations` (of both models).

    Args:
        folder: a results folder, or what was read of it.
        original: name of the model without the defence.
        defended: name of the model with it; with a `*`, every other model that it matches.
        metrics: symbols of metrics of a defence; None: all that the folder has.
        bootstrap: replicates, over images; 0: no intervals.
        seed: of the resampling.

    Raises:
        UnknownName: if there is no such model or metric.
        Unsupported: if a metric is not about a defence.
        InvalidInput: if the two models did not see the same labelled images.
        Unavailable: if there is no such folder, or no cell in it.
    """
    asked = _choose(metrics)
    outcomes = folder if isinstance(folder, Outcomes) else _read_pair(folder, original, defended)
    every: list[tuple[dict[str, Any], dict[str, Draws], list[dict[str, np.ndarray]], np.ndarray]] = []
    judged: dict[str, set[str]] = {}
    names = _defended_names(outcomes, original, defended)
    for name in names:
        pairs = _find_pairs(outcomes, original, name)
        for pair in pairs:
            counts = resample(pair[0].subject.images, bootstrap, seed)
            images = f"data={images_text(pair[0].subject)}" if len(pairs) > 1 else ""
            for labels, draws, shares, majorities in _lines_of(outcomes, pair, counts, asked):
                judged.setdefault(name, set()).update(majorities)
                setting = ", ".join(filter(None, (images, labels["setting"])))
                about = {"defended": name if len(names) > 1 else "", "setting": setting}
                every.append((labels | about, draws, shares, counts))
    kept = [symbol for symbol in asked if metrics is not None or any(draws[symbol].n for _, draws, *_ in every)]
    lines = tuple(
        TableRow(
            {name: labels[name] for name in _LABELS},
            {symbol: _estimate(symbol, draws[symbol], shares if bootstrap else []) for symbol in kept},
        )
        for labels, draws, shares, _ in every
    )
    notes = (*outcomes.notes, *_how_judged(outcomes, (original, *names), judged if "MRV" in kept else {}))
    if "MRV" in kept and any(row.labels["violations"] for row in lines):
        ends = ", and as 1 in the upper ends of their intervals" if bootstrap else ""
        notes += (f"violations prove nothing: they count as 0 in the rates that MRV is the difference of{ends}",)
    return Table("defence", _LABELS, tuple(kept), lines, notes)


def _how_judged(outcomes: Outcomes, names: Sequence[str], judged: Mapping[str, Collection[str]]) -> list[str]:
    """Lines where a random model is among those of these names: other tables have the shares of its draws.

    Args:
        outcomes: the folder.
        names: of the original and of what is held against it.
        judged: where MRV goes by majorities of draws, by name of the defended model.
    """
    known = model_names(outcomes)
    drawn = {known[key] for key, each in outcomes.clean.items() if _is_random(outcomes, each)}
    said = ", ".join(name for name in dict.fromkeys(names) if name in drawn)
    line = f"{said}: CAV and the like go by the majority of its draws, MRV, MR and RA by the share of them"
    exceptions = [
        f"MRV of {name} goes by the majority of the draws {where}" for name in judged for where in sorted(judged[name])
    ]
    return [line, *exceptions] if said else []


def _is_random(outcomes: Outcomes, clean: Clean) -> bool:
    """Whether a model draws random numbers, as far as its records show: they have shares of draws."""
    key, right = clean.subject.key, clean.columns["CA"]
    if any(each.is_random for each in outcomes.done if each.cell.subject.key == key):
        return True
    return bool(((right > 0) & (right < 1)).any())


def _lines_of(
    outcomes: Outcomes, pair: tuple[Clean, Clean], counts: np.ndarray, asked: Sequence[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Draws], list[dict[str, np.ndarray]], set[str]]]:
    """The labels of each row of a defence, what its metrics are drawn from, its shares, and where none are of draws."""
    labels, images = torch.tensor(pair[0].columns["label"]), pair[0].subject.images
    clean = _alike(*(_Side(item.logits, np.ones(images, bool)) for item in pair))
    nothing = {"examples": "clean", "made_on": "", "norm": "", "epsilon": math.nan, "targeted": False, "setting": ""}

    def known_of(draws: dict[str, Draws]) -> dict[str, Draws]:
        original, defended = pair
        has_detector = original.logits.shape != defended.logits.shape and outcomes.has_detector(defended.subject)
        if all(each.has_confidences for each in pair) and not has_detector:
            return draws
        missing = draws_of(np.full(len(counts), np.nan), 0)
        gone = {"FV"} if has_detector else set()  # "detected" is no class of the data
        gone |= {symbol for symbol in draws if needs_confidences(symbol)}
        return {symbol: missing if symbol in gone else each for symbol, each in draws.items()}

    yield (
        {**nothing, "images": images, "violations": 0},
        known_of(_draw_outputs(clean, labels, counts, asked)),
        [_shares(clean, labels)],
        set(),
    )
    for group, made_on, repeats in _common(outcomes, pair, labels):
        each = [_draw_pair(repeat, labels, counts, asked) for repeat in repeats]
        drawn = {symbol: aggregate([[draws[symbol] for draws in each]]) for symbol in asked}
        known = {
            "examples": group.labels["implementation"],
            "made_on": made_on,
            "images": sum(int((two.sides[0].counts & two.sides[1].counts).sum()) for two in repeats),
            "violations": sum(two.violations for two in repeats),
        }
        named = {name: group.labels[name] for name in ("norm", "epsilon", "targeted", "setting")}
        shares = [_shares(two.sides, labels, two.values) for two in repeats]
        yield named | known, known_of(drawn), shares, {two.by_majority for two in repeats if two.by_majority}


def _defended_names(outcomes: Outcomes, original: str, defended: str) -> list[str]:
    """The models that a name, or a pattern, stands for."""
    if "*" not in defended:
        return [defended]
    known = list(dict.fromkeys(name for key, name in model_names(outcomes).items() if key in outcomes.clean))
    names = [name for name in known if name != original and fnmatch(name, defended)]
    if not names:
        raise UnknownName("model", defended, known)
    return names


def _read_pair(folder: str | Path, original: str, defended: str) -> Outcomes:
    """The folder with the logits of two models."""
    return read_outcomes(
        folder,
        keep_logits=lambda subject: "*" in defended or subject.is_called((original, defended)),
    )


def _choose(symbols: Sequence[str] | None) -> tuple[str, ...]:
    every = tuple(symbol for symbol, record in METRICS.items() if record.group.startswith("defence"))
    chosen = every if symbols is None else resolve_symbols(symbols)
    for symbol in chosen:
        if symbol not in METRICS:
            raise unknown_metric(symbol)
        if symbol not in every:
            raise Unsupported(f"{symbol} is about one model: ask for it without --defence")
    return chosen


def _find_pairs(outcomes: Outcomes, original: str, defended: str) -> list[tuple[Clean, Clean]]:
    """Both models on each set of images that both saw."""
    names = {key: name for key, name in model_names(outcomes).items() if key in outcomes.clean}
    sides = []
    for name in (original, defended):
        each = [outcomes.clean[key] for key, known in names.items() if known == name]
        if not each:
            raise UnknownName("model", name, set(names.values()))
        sides.append(each)
    same = [(a, b) for a in sides[0] for b in sides[1] if _of_same_images(a, b)]
    if not same:
        seen = ["; ".join(images_text(each.subject) for each in side) for side in sides]
        raise InvalidInput(
            f"expected images that {original} and {defended} both saw, got {seen[0]} and {seen[1]}: "
            "evaluate both on the same"
        )
    for a, b in same:
        confident = a.has_confidences and b.has_confidences
        if a.logits.shape != b.logits.shape and confident and not outcomes.has_detector(b.subject):
            shapes = f"{a.logits.shape[1]} and {b.logits.shape[1]}"
            raise InvalidInput(f"expected two models with the same classes, got {shapes} classes")
    return same


def _of_same_images(a: Clean, b: Clean) -> bool:
    """By their digest, under whatever name; else, as models may take them in other sizes, by the names of all."""
    labels, names = (np.array_equal(a.columns[name], b.columns[name]) for name in ("label", "image"))
    same = a.subject.data_digest == b.subject.data_digest or (a.subject.data == b.subject.data and names)
    return labels and same


def _common(
    outcomes: Outcomes, pair: tuple[Clean, Clean], labels: Tensor
) -> Iterator[tuple[Group, str, list[_Repeat]]]:
    """The attacks that both models met, with their outcomes paired by seed; then those of the original that it saw."""
    keys = [each.subject.key for each in pair]
    mine = tuple(each for each in outcomes.done if each.cell.subject.key in keys)
    groups = group_cells(replace(outcomes, done=mine, failed=()), "attacks")
    by_seed = [
        {(each.cell.subject.key, each.cell.seed): each for part in group.parts for each in part} for group in groups
    ]
    plain = {(plain_setting_of(each.cell), *key): each for of in by_seed for key, each in of.items()}
    for group, of in zip(groups, by_seed, strict=True):
        met = []
        for each in (each for (key, _), each in of.items() if key == keys[1]):  # perhaps at several numbers of draws
            place = keys[0], each.cell.seed
            before = of.get(place) or plain.get((plain_setting_of(each.cell), *place))
            met += [_met(outcomes, before, each)] if before is not None else []
        if met:
            yield group, "own", met
    for group, of in zip(groups, by_seed, strict=True):
        seen = [_seen(outcomes, each, pair[1], labels) for (key, _), each in of.items() if key == keys[0]]
        if any(seen):
            yield group, "original", [each for each in seen if each]


def _met(outcomes: Outcomes, original: Outcome, defended: Outcome) -> _Repeat:
    """Each model on the examples that were made on it."""
    before, after = _alike(*(_Side(_logits(outcomes, each), _counts(each)) for each in (original, defended)))
    violations = sum(int(each.results.invalid.sum()) for each in (original, defended))
    of_draws = original.is_random or defended.is_random
    where = _TARGETED if of_draws and defended.cell.threat_model.targeted else ""
    return _Repeat((before, after), (_bounded(original), _bounded(defended)), violations, where)


def _bounded(outcome: Outcome) -> Mapping[str, np.ndarray]:
    """The columns of a cell, and its rate if what broke a rule, which proves nothing, is fooled."""
    columns = outcome.columns
    if "MR" not in columns:
        return columns
    rate = columns["MR"]
    return join_columns(columns, {_MOST: np.where(outcome.results.undecided_fooled & ~np.isnan(rate), 1.0, rate)})


def _seen(outcomes: Outcomes, original: Outcome, defended: Clean, labels: Tensor) -> _Repeat | None:
    """Both models on the examples that were made on the original; None if the defended one was not shown them."""
    shown = read_shown(outcomes.store, original.cell.key, defended.subject.key)
    if shown is None:
        return None
    logits, answered = _answers(shown.logits)
    shown = shown._replace(logits=logits)
    counts = _counts(original)
    sides = _alike(_Side(_logits(outcomes, original), counts), _Side(logits, counts & answered))
    violations = int((original.results.invalid | ~answered).sum())
    if "MR" not in original.columns:
        return _Repeat(sides, ({}, {}), violations)
    where = ""
    if original.is_random and original.cell.threat_model.targeted:
        shown, where = shown._replace(share=None), _TARGETED  # the original's rate is that of its median draw, too
    elif shown.share is None and _is_random(outcomes, defended):
        where = _UNKNOWN if shown.detected is None else "on examples of the original: it has a detector"
    fooled = _rate_when_shown(shown, defended, labels)
    rate = np.where(sides[1].counts | np.isnan(fooled), fooled, 0.0)
    rate[~original.columns["attacked"]] = np.nan
    most = np.where((original.results.undecided_fooled | ~answered) & ~np.isnan(rate), 1.0, rate)
    before = {name: _bounded(original)[name] for name in ("MR", _MOST)}
    return _Repeat(sides, (before, {"MR": rate, _MOST: most}), violations, where)


def _rate_when_shown(shown: Transferred, defended: Clean, labels: Tensor) -> np.ndarray:
    """How much of each image is fooled, (n,): 0 or 1, or the share of draws; NaN where it is wrong when clean."""
    fooled = METRICS["MR"].function(defended.logits, shown.logits, labels, reduction="none").double().numpy()
    if shown.share is not None:
        fooled = np.where(np.isnan(fooled), np.nan, shown.share)
    return fooled if shown.detected is None else np.where(shown.detected & ~np.isnan(fooled), 0.0, fooled)


def _alike(first: _Side, second: _Side) -> tuple[_Side, _Side]:
    """Both as wide as the wider: what gives labels only may have another number of classes, none of which is likely."""
    width = max(first.logits.shape[1], second.logits.shape[1])

    def widened(side: _Side) -> _Side:
        missing = width - side.logits.shape[1]
        if not missing:
            return side
        least = side.logits.amin(1, keepdim=True) - 1
        return side._replace(logits=torch.cat([side.logits, least.expand(-1, missing)], 1))

    return widened(first), widened(second)


def _draw_outputs(sides: Any, labels: Tensor, counts: np.ndarray, symbols: Sequence[str]) -> dict[str, Draws]:
    """The metrics of two models' outputs on examples, NaN for the others."""
    original, defended = sides
    both, draws = original.counts & defended.counts, {}
    for symbol in symbols:
        record = METRICS[symbol]
        if record.of_images and record.group == "defence":
            values = record.function(original.logits, defended.logits, labels, reduction="none")
            draws[symbol] = draw_means(counts, np.where(both, values.double().numpy(), np.nan)[:, None])[0]
        elif record.base == "CF":
            truth = labels.numpy()[both]
            scores = [draw_macro_f1(counts[:, both], truth, side.logits.argmax(1).numpy()[both]) for side in sides]
            draws[symbol] = draws_of(scores[1] - scores[0], int(both.sum()))
        else:
            draws[symbol] = draws_of(np.full(len(counts), np.nan), 0)
    return draws


def _shares(sides: Any, labels: Tensor, values: Sequence[Mapping[str, np.ndarray]] = ()) -> dict[str, np.ndarray]:
    """What shares are counted from, by symbol, (n, 2): what is added up and, of differences, what is taken from it."""
    right = [(side.logits.argmax(1) == labels).numpy() for side in sides]
    gained, lost = (np.where(sides[0].counts & sides[1].counts, each, np.nan) for each in (
        right[1] & ~right[0], right[0] & ~right[1]
    ))  # fmt: skip
    nothing = np.zeros(len(gained))
    shares = {"CRR": (gained, nothing), "CSR": (lost, nothing), "CAV": (gained, lost)}
    if values and all("MR" in each for each in values):
        shares["MRV"] = values[1]["MR"].astype(float), values[0]["MR"].astype(float)
        shares[_MOST] = values[1][_MOST].astype(float), values[0][_MOST].astype(float)
    return {symbol: np.stack(columns, axis=1) for symbol, columns in shares.items()}


def _estimate(symbol: str, draws: Draws, shares: Sequence[dict[str, np.ndarray]]) -> Estimate:
    """The estimate with the interval of a share, or of a difference of shares, where it is one."""
    estimate = interval(draws.ratio, draws.n, draws.different)
    known = [each[symbol] for each in shares if symbol in each]
    kind = METRICS[symbol].kind
    if kind not in ("share", "difference") or not known:
        return estimate
    plus, minus = _ends(known)
    if symbol == "MRV":  # what proves nothing may be fooled (the bounds of Manski 2003 for what is missing)
        most = _ends([each[_MOST] for each in shares if symbol in each])
        plus, minus = ((*each[:2], highest[2]) for each, highest in zip((plus, minus), most, strict=True))
    alike = discordant_correlation(plus[0], minus[0]) if symbol == "CAV" else 0.0
    low, high = plus[1:] if kind == "share" else difference_ends(plus, minus, alike)
    return estimate._replace(low=low, high=high)


def _ends(shares: Sequence[np.ndarray]) -> list[tuple[float, float, float]]:
    """Share, lower and upper end of what is added and of what is taken, of repeats, (n, 2) each."""
    both = (clustered_interval(np.stack([each[:, side] for each in shares], axis=1)) for side in (0, 1))
    return [(float(each.value), float(each.low), float(each.high)) for each in both]


def _draw_pair(repeat: _Repeat, labels: Tensor, counts: np.ndarray, symbols: Sequence[str]) -> dict[str, Draws]:
    """Every metric of one attack on both models."""
    sides, known = repeat.sides, repeat.values
    draws, both = _draw_outputs(sides, labels, counts, symbols), sides[0].counts & sides[1].counts
    for symbol in symbols:
        record = METRICS[symbol]
        if record.group == "defence":
            continue
        if record.of_images:
            known_arguments = {"adv_logits": sides[0].logits, "defended_adv_logits": sides[1].logits, "labels": labels}
            given = {name: known_arguments[name] for name in record.arguments}
            values = record.function(**given, reduction="none").double().numpy()
            draws[symbol] = draw_means(counts, np.where(both, values, np.nan)[:, None])[0]
        elif all(record.base in columns for columns in known):
            columns = np.stack([columns[record.base].astype(float) for columns in known], axis=1)
            before, after = draw_means(counts, columns)
            draws[symbol] = draws_of(after.ratio - before.ratio, min(before.n, after.n))
    return draws


def _logits(outcomes: Outcomes, outcome: Outcome) -> Tensor:
    """On its adversarial images, (n, K): what was kept of them, or read again; 0 where a model gave none."""
    if outcome.adv_logits is not None:
        return _answers(outcome.adv_logits)[0]
    return _answers(logits_of(outcomes.store.read("cells", outcome.cell.key).table, "adv_logits"))[0]


def _answers(logits: Tensor) -> tuple[Tensor, np.ndarray]:
    """Logits, (n, K), with 0 in rows that are not finite, which count nowhere and no metric takes; which are, (n,)."""
    finite = logits.isfinite().all(1)
    return logits if finite.all() else logits.masked_fill(~finite[:, None], 0.0), finite.numpy()


def _counts(outcome: Outcome) -> np.ndarray:
    """Examples that keep the rules, and images that are wrong when clean: they count unchanged, (n,) bool."""
    return outcome.usable | ~outcome.columns["attacked"]
