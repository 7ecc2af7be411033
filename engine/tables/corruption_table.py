"""How models bear corruptions: errors, their sums and ratios to a baseline, flips along sequences, with intervals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch

from ...adapters.data.corruptions.published import BENCHMARK, SEVERITIES, alexnet_errors
from ...adapters.data.corruptions.sequences import SEQUENCES
from ...adapters.models.outputs import explain_predictions
from ...errors import UnknownName, Unsupported
from ...intervals import share_interval
from ...metrics import (
    corruption_error,
    flip_rates,
    mean_corruption_error,
    mean_flip_rate,
    relative_corruption_error,
)
from ..statistics.bootstrap import Estimate, interval, resample
from .corrupted_models import CorruptedModel, flip_probability_of, flips_of, read_corrupted_models
from .table import Table, TableRow

ALEXNET = "alexnet"
CorruptionsBy = Literal["models", "corruptions"]
_LARGE = "severities of imagenet,"  # in the source of corruptions at ImageNet's size
_OF_IMAGENET = ("demo:imagenet", "foolbox:imagenet")
_NOTHING = Estimate(float("nan"), float("nan"), float("nan"), 0)


def build_corruptions(
    folder: str | Path,
    *,
    by: CorruptionsBy = "models",
    baseline: str = "",
    bootstrap: int = 1000,
    seed: int = 0,
) -> Table:
    """The table of a folder that `davylamp corrupt-table` filled.

    By models: `error` without corruption; mCE and RmCE as AISafety defines them, sums of error rates over the
    severities; `mCE/base`, the mean over the corruptions of the ratio to the baseline's sum (Hendrycks and Dietterich:
    times 100); FP, the mean over the sequences; mFR, the mean ratio of flip probabilities to the baseline's. By
    corruptions: the error at each severity, CE, CE/base, FP and FP/base. Intervals are 95 %: Clopper and Pearson's of
    an error, else percentiles of a bootstrap over the images, the same ones for every corruption and the baseline.

    Args:
        folder: a results folder.
        by: what a row is about.
        baseline: a model of the folder, or "alexnet": published errors on ImageNet-C; "": AlexNet's on ImageNet.
        bootstrap: replicates; 0: no intervals.
        seed: of the resampling.

    Raises:
        Unavailable: if nothing of the kind is there.
        UnknownName: if there is no such baseline.
        Unsupported: if AlexNet's errors are of other images.
    """
    models, failed = read_corrupted_models(folder)
    names = sorted({each.model for each in models})
    if baseline not in ("", ALEXNET, *names):
        raise UnknownName("baseline", baseline, [ALEXNET, *names])
    bench = [_Bench(each, _baseline_of(each, models, baseline), bootstrap, seed, models) for each in models]
    rows = [row for each in bench for row in (each.by_corruption() if by == "corruptions" else [each.by_model()])]
    symbols = tuple(
        symbol for symbol in rows[0].metrics if any(not np.isnan(row.metrics[symbol].value) for row in rows)
    )
    kept = tuple(TableRow(row.labels, {symbol: row.metrics[symbol] for symbol in symbols}) for row in rows)
    notes = [note for each in bench for note in each.notes] + [
        f"left out: {name}: {why}" for name, why in failed.items()
    ]
    return Table(f"corruption {by}", tuple(rows[0].labels), symbols, kept, tuple(dict.fromkeys(notes)))


class ErrorCurve(NamedTuple):
    """Error rate of a model at each severity, the clean images as severity 0; `corruption` "": the mean over all."""

    model: str
    data: str
    corruption: str
    severities: tuple[int, ...]
    errors: tuple[Estimate, ...]


def build_error_curves(models: Sequence[CorruptedModel], *, bootstrap: int = 1000, seed: int = 0) -> list[ErrorCurve]:
    """The curve of every model and corruption, those of the means first.

    Args:
        models: from `read_corrupted_models`.
        bootstrap: replicates of the means' intervals; 0: no intervals.
        seed: of the resampling.
    """
    bench = [_Bench(each, "", bootstrap, seed) for each in models if each.errors]
    means = [each.mean_curve() for each in bench if each.levels]
    return [*means, *(curve for each in bench for curve in each.curves())]


def _baseline_of(mine: CorruptedModel, models: list[CorruptedModel], baseline: str) -> "CorruptedModel | str":
    """The baseline's records, "alexnet", or "" for none."""
    if baseline == ALEXNET:
        if mine.data.startswith(("foolbox:", "demo:", "cifar-10-c:")) and mine.data not in _OF_IMAGENET:
            raise Unsupported(f"AlexNet's errors are published of ImageNet, got {mine.data}; name a model as baseline")
        return ALEXNET
    if not baseline:
        large = all(not record.cell.source or _LARGE in record.cell.source for record in mine.records)
        return ALEXNET if large and (mine.data in _OF_IMAGENET or mine.data.startswith("imagenet-c:")) else ""
    same = [each for each in models if each.model == baseline and each.data == mine.data and each.images == mine.images]
    if not same:
        raise Unsupported(f"expected the baseline {baseline} on the {mine.images} images of {mine.data}, found none")
    return same[-1]


class _Bench:
    """The numbers of one model beside its baseline."""

    def __init__(
        self,
        mine: CorruptedModel,
        base: CorruptedModel | str,
        bootstrap: int,
        seed: int,
        models: Sequence[CorruptedModel] = (),
    ):
        self.mine, self.base, self.bootstrap = mine, base, bootstrap
        self.n, self.levels, self.corruptions = mine.images, mine.severities, list(mine.errors)
        paired = mine.paired and (
            isinstance(base, str) or (base.paired and base.records[0].names == mine.records[0].names)
        )
        self.counts = resample(self.n, bootstrap if paired else 0, seed).astype(float)
        self.notes = [*_notes(mine, base, models)] + (
            [] if paired else [f"{mine.model}: records of different images: no interval but an error's"]
        )
        self.rates = self._rates(mine)  # (corruptions, severities, R)
        self.compared = [name for name in self.corruptions if self._reference(name) is not None]
        self.flips = {name: flips_of(record) for name, record in mine.sequences.items()}
        self.notes += self._undefined_ratios()

    def by_model(self) -> TableRow:
        """Means over the corruptions."""
        labels = {"model": self.mine.model, "data": self.mine.data, "corruptions": len(self.corruptions)}
        labels |= {"severities": " ".join(map(str, self.levels)), "sequences": len(self.flips), "images": self.n}
        names = ("error", "mCE", "RmCE", "mCE/base", "FP", "mFR")
        metrics: dict[str, Estimate] = dict.fromkeys(names, _NOTHING)
        clean = self.mine.clean
        if clean is not None:
            metrics["error"] = self._share(clean.wrong)
        if self.corruptions and self.levels:
            sums = self.rates.sum(1)
            metrics["mCE"] = self._estimate(float(mean_corruption_error(self._point(self.rates))), sums.mean(0))
            if clean is not None:
                drawn = self._draw(clean.wrong)
                value = relative_corruption_error(self._point(self.rates), float(drawn[0]))
                metrics["RmCE"] = self._estimate(float(value), (sums - len(self.levels) * drawn).mean(0))
        if self.compared:
            metrics["mCE/base"] = self._estimate(*self._ratio(self.compared))
        if self.flips:
            metrics["FP"] = self._estimate(*self._mean_flips(list(self.flips)))
            metrics["mFR"] = self._mean_flip_rate(list(self.flips))
        return TableRow(labels, metrics)

    def by_corruption(self) -> list[TableRow]:
        """One row for each corruption or sequence."""
        rows = []
        for name in dict.fromkeys((*self.corruptions, *self.flips)):
            labels = {"model": self.mine.model, "data": self.mine.data, "corruption": name, "images": self.n}
            metrics: dict[str, Estimate] = {f"E@{level}": _NOTHING for level in (1, 2, 3, 4, 5)}
            metrics |= dict.fromkeys(("CE", "CE/base", "FP", "FP/base"), _NOTHING)
            if name in self.corruptions and self.levels:
                place = self.corruptions.index(name)
                for level, record in self.mine.errors[name].items():
                    metrics[f"E@{level}"] = self._share(record.wrong)
                mine = self.rates[place : place + 1]
                metrics["CE"] = self._estimate(float(corruption_error(self._point(mine))[0]), mine.sum((0, 1)))
                if name in self.compared:
                    metrics["CE/base"] = self._estimate(*self._ratio([name]))
            if name in self.flips:
                metrics["FP"] = self._estimate(*self._mean_flips([name]))
                metrics["FP/base"] = self._mean_flip_rate([name])
            rows.append(TableRow(labels, metrics))
        return rows

    def mean_curve(self) -> ErrorCurve:
        """The mean over the corruptions at each severity."""
        means = self.rates.mean(0)
        estimates = [self._estimate(float(drawn[0]), drawn) for drawn in means]
        return self._curve("", self.levels, estimates)

    def curves(self) -> list[ErrorCurve]:
        """One for each corruption."""
        return [
            self._curve(name, tuple(sorted(levels)), [self._share(levels[level].wrong) for level in sorted(levels)])
            for name, levels in self.mine.errors.items()
        ]

    def _curve(self, name: str, levels: tuple[int, ...], estimates: list[Estimate]) -> ErrorCurve:
        clean = self.mine.clean
        start, before = ((0,), [self._share(clean.wrong)]) if clean is not None else ((), [])
        return ErrorCurve(self.mine.model, self.mine.data, name, (*start, *levels), (*before, *estimates))

    def _rates(self, model: CorruptedModel) -> np.ndarray:
        """Error rates in every replicate, (corruptions, severities, R)."""
        if not self.corruptions or not self.levels:
            return np.zeros((0, 0, len(self.counts)))
        return np.array(
            [[self._draw(model.errors[name][level].wrong) for level in self.levels] for name in self.corruptions]
        )

    def _reference(self, name: str) -> np.ndarray | None:
        """The baseline's error rates of a corruption, (severities, R); None: it has none."""
        shape = len(self.levels), len(self.counts)
        if self.base == ALEXNET:
            known = name in BENCHMARK and self.levels == SEVERITIES  # a mean over all of them
            return np.full(shape, alexnet_errors([name])[0]) if known else None
        if isinstance(self.base, str) or not set(self.levels) <= set(self.base.errors.get(name, {})):
            return None
        return np.array([self._draw(self.base.errors[name][level].wrong) for level in self.levels])

    def _ratio(self, names: list[str]) -> tuple[float, np.ndarray]:
        """The mean ratio to the baseline, and in every replicate."""
        mine = self.rates[[self.corruptions.index(name) for name in names]]
        base = np.array([self._reference(name) for name in names])
        value = mean_corruption_error(self._point(mine), baseline_errors=self._point(base))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = mine.sum(1) / np.where(base.sum(1) > 0, base.sum(1), np.nan)
        return float(value), _mean(ratios)

    def _undefined_ratios(self) -> list[str]:
        """What the means of ratios to the baseline leave out, as it has no error there or never flips."""
        if isinstance(self.base, str):
            return []
        rates = {name: self._reference(name) for name in self.compared}
        faultless = [name for name, each in rates.items() if each is not None and not each[:, 0].any()]
        flips = {name: self.base.sequences[name] for name in self.flips if name in self.base.sequences}
        still = [name for name, record in flips.items() if flip_probability_of(record) == 0]
        lines = (("mCE/base", faultless, "makes no error there"), ("mFR", still, "never flips there"))
        return [
            f"{self.mine.model}: {symbol} is without {', '.join(names)}: {self.base.model} {why}"
            for symbol, names, why in lines
            if names
        ]

    def _mean_flips(self, names: list[str]) -> tuple[float, np.ndarray]:
        values = [flip_probability_of(self.mine.sequences[name]) for name in names]
        return float(np.mean(values)), np.mean([self._draw(self.flips[name]) for name in names], axis=0)

    def _mean_flip_rate(self, names: list[str]) -> Estimate:
        base = {} if isinstance(self.base, str) else self.base.sequences
        both = [name for name in names if name in base]
        if not both:
            return _NOTHING
        mine, theirs = ([flip_probability_of(of[name]) for name in both] for of in (self.mine.sequences, base))
        value = mean_flip_rate(torch.tensor(mine), torch.tensor(theirs))
        drawn = [self._draw(self.flips[name]) for name in both], [self._draw(flips_of(base[name])) for name in both]
        ratios = np.array([flip_rates(torch.tensor(a), torch.tensor(b)).numpy() for a, b in zip(*drawn, strict=True)])
        return self._estimate(float(value), _mean(ratios))

    def _draw(self, values: np.ndarray) -> np.ndarray:
        """The mean of a value of each image, in every replicate, (R,)."""
        return (self.counts[:, : len(values)] @ values / self.counts.sum(1)).clip(0, 1)

    def _point(self, rates: np.ndarray) -> torch.Tensor:
        return torch.tensor(rates[..., 0])

    def _estimate(self, value: float, drawn: np.ndarray) -> Estimate:
        return interval(np.array([value, *drawn[1:]]), self.n)

    def _share(self, wrong: np.ndarray) -> Estimate:
        low, high = share_interval(wrong.sum(), len(wrong)) if self.bootstrap else (np.nan, np.nan)
        return Estimate(float(wrong.mean()), low, high, len(wrong))


def _mean(ratios: np.ndarray) -> np.ndarray:
    """Mean over the rows that are defined, (R,)."""
    known = ~np.isnan(ratios)
    with np.errstate(invalid="ignore"):
        return np.nansum(ratios, 0) / np.where(known.any(0), known.sum(0), np.nan)


def _why_nothing_is_right(mine: CorruptedModel) -> list[str]:
    """A line for a model that gets (almost) nothing right where most should be: classes in another order, and such."""
    mildest = [levels[min(levels)] for levels in mine.errors.values() if levels]
    records = [mine.clean] if mine.clean is not None else mildest
    if not records:
        return []
    best = min(records, key=lambda record: record.wrong.mean())
    answered = best.predicted >= 0
    predicted, labels = (torch.tensor(each[answered]).long() for each in (best.predicted, best.labels))
    if not len(labels):
        return []
    seen = int(max(predicted.max(), labels.max())) + 1  # a record does not say how many classes there are
    why = explain_predictions(predicted, labels, seen)
    images = "clean" if mine.clean is not None else f"{best.cell.corruption} {best.cell.severity}"
    return [f"{mine.model}, {images}: {why}"] if why else []


def _notes(mine: CorruptedModel, base: CorruptedModel | str, models: Sequence[CorruptedModel]) -> list[str]:
    """What the numbers do not tell."""
    notes: list[str] = []
    made: Mapping[str, bool] = {record.cell.source: True for record in mine.records if record.cell.source}
    if made:
        notes.append(
            f"ImageNet-C-like: made in memory ({', '.join(made)}); the published set is stored as JPEG, and harder"
        )
    if base == ALEXNET and mine.errors and mine.severities != SEVERITIES:
        notes.append("no CE/base: AlexNet's errors are published as means over all five severities; name a --baseline")
    elif base == ALEXNET and mine.errors:
        notes.append(
            f"base: AlexNet's published errors on ImageNet-C, 50 000 images; here {mine.images} of {mine.data}"
        )
    elif isinstance(base, CorruptedModel):
        notes.append(f"base: {base.model} on the same images")
    lacking = [name for name in BENCHMARK if name not in mine.errors]
    if mine.errors and lacking and set(mine.errors) & set(BENCHMARK):
        notes.append(f"{mine.model}: means over {len(mine.errors)} corruptions, without {', '.join(lacking)}")
    if mine.errors and mine.severities != SEVERITIES:
        notes.append(f"{mine.model}: sums over severities {', '.join(map(str, mine.severities)) or 'none'} only")
    if mine.errors and mine.clean is None:
        alone = [
            f"{each.images}" for each in models if (each.model, each.data) == (mine.model, mine.data) and each.clean
        ]
        why = f"of the same {mine.images} images, got {', '.join(alone)}" if alone else ""
        notes.append(f"{mine.model}: no RmCE without the clean images{why and f' {why}'}: --clean DATA")
    if mine.sequences and isinstance(base, str):
        notes.append("no mFR: AlexNet's flip probabilities are not published; name a model with --baseline")
    findings = {SEQUENCES[name].finding: name for name in mine.sequences if name in SEQUENCES}
    notes += [f"sequences such as {name}: {finding}" for finding, name in findings.items() if finding]
    notes += _why_nothing_is_right(mine)
    silent = sum(int((record.predicted < 0).any(axis=-1).sum()) for record in mine.records)
    return [*notes, *([f"{mine.model}: {silent} answers that are not finite count as errors"] if silent else [])]
