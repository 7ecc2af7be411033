"""What a defence changes: two models of a folder on the same images, clean and under the attacks that both met."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import InvalidInput, UnknownName, Unsupported
from ...metrics import METRICS
from ..statistics.bootstrap import Draws, Estimate, draw_macro_f1, draw_means, draws_of, interval, resample
from ..statistics.shares import clustered_interval, difference_ends, discordant_correlation
from ..store.outcomes import Clean, Outcome, Outcomes, read_outcomes
from .groups import Group, group_cells, may_be_called, model_names
from .table import Table, TableRow, aggregate

_OUTPUTS = ("CAV", "CV", "CRR", "CSR", "CCV", "COS")  # of two models' logits, per image
_ATTACKED = ("ARAC", "AITC")
_DIFFERENCES = {"MRV": "MR", "AMDV": "AMD", "AEDV": "AED", "APCRV": "APCR", "ADMSV": "ADMS", "ALMSV": "ALMS"}
SYMBOLS = ("CAV", "FV", "CV", "CRR", "CSR", "CCV", "COS", "MRV", "ARAC", "AITC", *list(_DIFFERENCES)[1:])
_SHARES = ("CRR", "CSR")
_OF_SHARES = ("CAV", "MRV")  # differences of two shares
_LABELS = ("examples", "norm", "epsilon", "targeted", "setting", "images", "violations")


class _Side(NamedTuple):
    """One model's outputs on a set of examples, and which of them count."""

    logits: Tensor
    counts: np.ndarray


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

    The first row is on the clean images: what the defence costs. Then one for each attack that was run on both models,
    on the examples made on each; CAV, CRR... are of those, over the images that are wrong when clean or whose examples
    keep the rules on both. MRV, AMDV... are differences of the two models' means, each over its images. Repeats
    with other seeds are paired and averaged. Labels: `examples` ("clean" or the implementation), `norm`, `epsilon`,
    `targeted`, `setting`, `images` (that count), `violations` (of both models).

    Args:
        folder: a results folder, or what was read of it with the logits of both.
        original: name of the model without the defence.
        defended: name of the model with it.
        metrics: symbols of `SYMBOLS`; None: all that the folder has.
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
    pair = _find_pair(outcomes, original, defended)
    counts = resample(pair[0].subject.images, bootstrap, seed)
    labels, images = torch.tensor(pair[0].columns["label"]), pair[0].subject.images
    sides = tuple(_Side(item.logits, np.ones(images, bool)) for item in pair)
    drawn = [_draw_outputs(sides, labels, counts, asked)]
    shares = [[_shares(sides, labels)]]
    rows: list[dict[str, Any]] = [
        dict(zip(_LABELS, ("clean", "", math.nan, False, "", images, 0), strict=True)),
    ]
    for group, pairs in _common(outcomes, pair):
        read = [_sides_of(item) for item in pairs]
        each = [_draw_pair(item, two, labels, counts, asked) for item, two in zip(pairs, read, strict=True)]
        shares.append([_shares(two, labels, item) for item, two in zip(pairs, read, strict=True)])
        drawn.append({symbol: aggregate([[draws[symbol] for draws in each]]) for symbol in asked})
        violations = int(sum(item.columns["violated"].sum() for two in pairs for item in two))
        counted = sum(int((_counts(two[0]) & _counts(two[1])).sum()) for two in pairs)
        known = {"examples": group.labels["implementation"], "images": counted, "violations": violations}
        rows.append({name: known.get(name, group.labels.get(name)) for name in _LABELS})
    kept = [symbol for symbol in asked if metrics is not None or any(draws[symbol].n for draws in drawn)]
    lines = tuple(
        TableRow(item, {symbol: _estimate(symbol, draws[symbol], columns if bootstrap else []) for symbol in kept})
        for item, draws, columns in zip(rows, drawn, shares, strict=True)
    )
    return Table("defence", _LABELS, tuple(kept), lines, tuple(outcomes.notes))


def _read_pair(folder: str | Path, original: str, defended: str) -> Outcomes:
    """The folder with the logits of two models."""
    return read_outcomes(
        folder, keep_logits=lambda subject: may_be_called(subject, original) or may_be_called(subject, defended)
    )


def _choose(symbols: Sequence[str] | None) -> tuple[str, ...]:
    chosen = SYMBOLS if symbols is None else tuple(dict.fromkeys(symbols))
    for symbol in chosen:
        if symbol not in METRICS:
            raise UnknownName("metric", symbol, METRICS)
        if symbol not in SYMBOLS:
            raise Unsupported(f"{symbol} is about one model: ask for it without --defence")
    return chosen


def _find_pair(outcomes: Outcomes, original: str, defended: str) -> tuple[Clean, Clean]:
    names = {key: name for key, name in model_names(outcomes).items() if key in outcomes.clean}
    sides = []
    for name in (original, defended):
        each = [outcomes.clean[key] for key, known in names.items() if known == name]
        if not each:
            raise UnknownName("model", name, set(names.values()))
        sides.append(each)
    same = [
        (a, b)
        for a in sides[0]
        for b in sides[1]
        if (a.subject.data, a.subject.images) == (b.subject.data, b.subject.images)
        and np.array_equal(a.columns["label"], b.columns["label"])
    ]
    if len(same) != 1:
        raise InvalidInput(f"expected one set of images that {original} and {defended} both saw, got {len(same)}")
    a, b = same[0]
    if a.logits.shape != b.logits.shape:
        shapes = f"{a.logits.shape[1]} and {b.logits.shape[1]}"
        raise InvalidInput(f"expected two models with the same classes, got {shapes} classes")
    return same[0]


def _common(outcomes: Outcomes, pair: tuple[Clean, Clean]) -> list[tuple[Group, list[tuple[Outcome, Outcome]]]]:
    """The attacks that both models met, with their outcomes paired by seed."""
    keys = [each.subject.key for each in pair]
    mine = tuple(each for each in outcomes.done if each.cell.subject.key in keys)
    common = []
    for group in group_cells(replace(outcomes, done=mine, failed=()), "attacks"):
        of = {(each.cell.subject.key, each.cell.seed): each for part in group.parts for each in part}
        seeds = [seed for key, seed in of if key == keys[0] and (keys[1], seed) in of]
        if seeds:
            common.append((group, [(of[keys[0], seed], of[keys[1], seed]) for seed in seeds]))
    return common


def _draw_outputs(sides: Any, labels: Tensor, counts: np.ndarray, symbols: Sequence[str]) -> dict[str, Draws]:
    """The metrics of two models' outputs on examples, NaN for the others."""
    original, defended = sides
    both, draws = original.counts & defended.counts, {}
    for symbol in symbols:
        if symbol in _OUTPUTS:
            values = METRICS[symbol].function(original.logits, defended.logits, labels, reduction="none")
            draws[symbol] = draw_means(counts, np.where(both, values.double().numpy(), np.nan)[:, None])[0]
        elif symbol == "FV":
            truth = labels.numpy()[both]
            scores = [draw_macro_f1(counts[:, both], truth, side.logits.argmax(1).numpy()[both]) for side in sides]
            draws[symbol] = draws_of(scores[1] - scores[0], int(both.sum()))
        else:
            draws[symbol] = draws_of(np.full(len(counts), np.nan), 0)
    return draws


def _shares(sides: Any, labels: Tensor, two: tuple[Outcome, Outcome] | None = None) -> dict[str, np.ndarray]:
    """What shares are counted from, by symbol, (n, 2): what is added up and, of differences, what is taken from it."""
    right = [(side.logits.argmax(1) == labels).numpy() for side in sides]
    gained, lost = (np.where(sides[0].counts & sides[1].counts, each, np.nan) for each in (
        right[1] & ~right[0], right[0] & ~right[1]
    ))  # fmt: skip
    nothing = np.zeros(len(gained))
    shares = {"CRR": (gained, nothing), "CSR": (lost, nothing), "CAV": (gained, lost)}
    if two is not None and all("MR" in each.columns for each in two):
        shares["MRV"] = two[1].columns["MR"].astype(float), two[0].columns["MR"].astype(float)
    return {symbol: np.stack(columns, axis=1) for symbol, columns in shares.items()}


def _estimate(symbol: str, draws: Draws, shares: Sequence[dict[str, np.ndarray]]) -> Estimate:
    """The estimate with the interval of a share, or of a difference of shares, where it is one."""
    estimate = interval(draws.ratio, draws.n, draws.different)
    known = [each[symbol] for each in shares if symbol in each]
    if symbol not in (*_SHARES, *_OF_SHARES) or not known:
        return estimate
    added, taken = (clustered_interval(np.stack([each[:, side] for each in known], axis=1)) for side in (0, 1))
    plus, minus = ((float(each.value), float(each.low), float(each.high)) for each in (added, taken))
    alike = discordant_correlation(plus[0], minus[0]) if symbol == "CAV" else 0.0
    low, high = plus[1:] if symbol in _SHARES else difference_ends(plus, minus, alike)
    return estimate._replace(low=low, high=high)


def _sides_of(two: tuple[Outcome, Outcome]) -> list[_Side]:
    return [_Side(outcome.adv_logits, _counts(outcome)) for outcome in two if outcome.adv_logits is not None]


def _draw_pair(
    two: tuple[Outcome, Outcome], sides: list[_Side], labels: Tensor, counts: np.ndarray, symbols: Sequence[str]
) -> dict[str, Draws]:
    """Every metric of one attack on both models."""
    draws, both = _draw_outputs(sides, labels, counts, symbols), sides[0].counts & sides[1].counts
    for symbol in symbols:
        if symbol in _ATTACKED:
            given = [sides[0].logits, sides[1].logits, *([labels] if symbol == "AITC" else [])]
            values = METRICS[symbol].function(*given, reduction="none").double().numpy()
            draws[symbol] = draw_means(counts, np.where(both, values, np.nan)[:, None])[0]
        elif symbol in _DIFFERENCES and all(_DIFFERENCES[symbol] in outcome.columns for outcome in two):
            columns = np.stack([outcome.columns[_DIFFERENCES[symbol]].astype(float) for outcome in two], axis=1)
            before, after = draw_means(counts, columns)
            draws[symbol] = draws_of(after.ratio - before.ratio, min(before.n, after.n))
    return draws


def _counts(outcome: Outcome) -> np.ndarray:
    """Examples that keep the rules, and images that are wrong when clean: they count unchanged, (n,) bool."""
    return outcome.usable | ~outcome.columns["attacked"]
