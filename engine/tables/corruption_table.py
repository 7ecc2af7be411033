"""Table of robustness to corruptions: error rates, corruption errors and flip probabilities, with intervals."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch

from ...adapters.data.corruptions.published import BENCHMARK, CORRUPTIONS, SEVERITIES, alexnet_errors
from ...adapters.data.corruptions.sequences import SEQUENCES, find_sequence
from ...adapters.models.extract_logits import explain_predictions
from ...errors import Unavailable, UnknownName, Unsupported
from ...metrics import (
    corruption_error,
    flip_probability,
    flip_rates,
    mean_corruption_error,
    mean_flip_rate,
    relative_corruption_error,
)
from ..finding import Finding, note
from ..statistics.bootstrap import Estimate, bootstrap_means, interval
from ..store.other_records import CorruptionRecord, read_corruptions
from .estimates import NOTHING, estimate_share, mean_of_defined, resamples
from .table import Table, TableRow

ALEXNET = "alexnet"
CorruptionsBy = Literal["models", "corruptions"]
Value = TypeVar("Value")
_SMALL = "severities of cifar,"
_LARGE = "severities of imagenet,"  # in the source of corruptions at ImageNet's size
_OF_IMAGENET = ("demo:imagenet", "foolbox:imagenet")
_NO_ANSWER = 2**31 - 1  # class for non-finite logits: the metric needs classes >= 0


@dataclass
class CorruptedModel:
    """Predictions of one model on clean and corrupted images of one data set.

    Args:
        model: name of the model.
        data: name of the data.
        clean: predictions on clean images. None if the folder has none.
        errors: predictions on corrupted images, by corruption and severity.
        sequences: predictions on perturbation sequences, by name of the sequence.
    """

    model: str
    data: str
    clean: CorruptionRecord | None = None
    errors: dict[str, dict[int, CorruptionRecord]] = field(default_factory=dict)
    sequences: dict[str, CorruptionRecord] = field(default_factory=dict)

    @property
    def records(self) -> list[CorruptionRecord]:
        """Records of the clean images, the corrupted images and the sequences."""
        corrupted = [record for by_severity in self.errors.values() for record in by_severity.values()]
        return [*([self.clean] if self.clean else []), *corrupted, *self.sequences.values()]

    @property
    def images(self) -> int:
        """Number of images in the smallest record."""
        return min(len(record.labels) for record in self.records)

    @property
    def severities(self) -> tuple[int, ...]:
        """Severities for which there are predictions under every corruption."""
        common = [set(by_severity) for by_severity in self.errors.values()]
        return tuple(sorted(set.intersection(*common))) if common else ()

    @property
    def paired(self) -> bool:
        """Whether every record has the same images, in the same order."""
        return len({record.names for record in self.records}) == 1


def read_corrupted_models(folder: str | os.PathLike[str]) -> tuple[list[CorruptedModel], dict[str, str]]:
    """Read the predictions on corrupted images from a results folder.

    Returns:
        The models of the folder with their predictions; and the reasons why records could not be read, by record.

    Raises:
        Unavailable: if there is no such folder, or it has no predictions on corrupted images.
    """
    records, failed = read_corruptions(folder)
    models: dict[tuple[object, ...], CorruptedModel] = {}
    for record in records:
        cell = record.cell
        key = (cell.model, cell.model_digest, *cell.setting)
        mine = models.setdefault(key, CorruptedModel(cell.model, cell.data))
        if cell.sequence:
            mine.sequences[cell.corruption] = record
        elif cell.corruption:
            mine.errors.setdefault(cell.corruption, {})[cell.severity] = record
        else:
            mine.clean = record
    for mine in models.values():  # the authors' order, others after them
        mine.errors = _in_order(mine.errors, CORRUPTIONS)
        mine.sequences = _in_order(mine.sequences, SEQUENCES)
    if not models:
        place, why = os.fspath(folder), f" ({'; '.join(failed.values())})" if failed else ""
        raise Unavailable(f"no predictions on corrupted images in {place}{why}; run davylamp corruptions run")
    return list(models.values()), failed


def _in_order(values: dict[str, Value], order: Iterable[str]) -> dict[str, Value]:
    places = {name: place for place, name in enumerate(order)}
    return dict(sorted(values.items(), key=lambda item: places.get(item[0], len(places))))


def flips_of(record: CorruptionRecord) -> np.ndarray:
    """Return the flip rate of each image, (n,): the rate of frames whose prediction differs from the reference frame's.

    In noise sequences, the reference is the first frame. In other sequences, it is the previous frame.
    """
    frames = record.predicted
    reference = frames[:, :1] if _is_noise(record) else frames[:, :-1]
    return (frames[:, 1:] != reference).mean(1)


def flip_probability_of(record: CorruptionRecord) -> float:
    """Compute `metrics.flip_probability` of a perturbation sequence.

    As in its paper, the frames of noise sequences are compared with the first frame, and other frames with the
    previous one.
    """
    frames = torch.tensor(np.where(record.predicted < 0, _NO_ANSWER, record.predicted)).long()
    return float(flip_probability(frames, against="first" if _is_noise(record) else "previous"))


def _is_noise(record: CorruptionRecord) -> bool:
    """Whether a sequence is compared with its first frame (the clean image).

    In other sequences, each frame is compared with the previous frame.
    """
    row = SEQUENCES.get(record.cell.corruption)
    return row is not None and row.noise


def build_corruptions(
    folder: str | os.PathLike[str],
    *,
    by: CorruptionsBy = "models",
    baseline: str = "",
    bootstrap: int = 1000,
    seed: int = 0,
) -> Table:
    """Build the table of a folder that was written by `davylamp corruptions run`.

    Columns if a row is a model:

    - `error`: error rate on clean images.
    - mCE and RmCE: as defined by AISafety, from sums of error rates over the severities.
    - `mCE/base`: the sum of error rates divided by the baseline's sum, averaged over the corruptions. Hendrycks and
      Dietterich report this ratio times 100.
    - FP: mean flip probability over the sequences.
    - mFR: flip probability divided by the baseline's, averaged over the sequences.

    Columns if a row is a corruption: the error rate at each severity, CE, CE/base, FP and FP/base.

    Intervals are 95 %: Clopper and Pearson's for an error rate, otherwise percentiles of a bootstrap over the images.
    Each replicate draws the same images for every corruption and for the baseline.

    Args:
        folder: a results folder.
        by: whether a row is a model or a corruption: "models" or "corruptions".
        baseline: a model of the folder, or "alexnet" for AlexNet's published errors on ImageNet-C. "" selects AlexNet
            for ImageNet data, and no baseline for other data.
        bootstrap: number of bootstrap replicates; 0 for no intervals.
        seed: random seed of the bootstrap.

    Raises:
        Unavailable: if the folder has no predictions on corrupted images.
        UnknownName: if there is no such baseline.
        Unsupported: if the baseline has no results on the images of a model. AlexNet's errors are for ImageNet only.
    """
    models, failed = read_corrupted_models(folder)
    names = sorted({each.model for each in models})
    if baseline not in ("", ALEXNET, *names):
        raise UnknownName("baseline", baseline, [ALEXNET, *names])
    scores = [_Scores(each, _baseline_of(each, models, baseline), bootstrap, seed, models) for each in models]
    rows = [row for each in scores for row in (each.by_corruption() if by == "corruptions" else [each.by_model()])]
    symbols = tuple(
        symbol for symbol in rows[0].metrics if any(not math.isnan(row.metrics[symbol].value) for row in rows)
    )
    kept = tuple(TableRow(row.labels, {symbol: row.metrics[symbol] for symbol in symbols}) for row in rows)
    findings = {each.detail: each for score in scores for each in score.findings}
    for name, why in failed.items():
        findings[f"{name}: {why}"] = note("left-out", f"omitted: {name}: {why}", state="warn", subject=name)
    return Table(f"corruption {by}", tuple(rows[0].labels), symbols, kept, tuple(findings.values()))


class ErrorCurve(NamedTuple):
    """Error rate of a model at each severity of a corruption.

    Severity 0 stands for the clean images. If `corruption` is "", the rates are means over all corruptions.
    """

    model: str
    data: str
    corruption: str
    severities: tuple[int, ...]
    errors: tuple[Estimate, ...]


def build_error_curves(models: Sequence[CorruptedModel], *, bootstrap: int = 1000, seed: int = 0) -> list[ErrorCurve]:
    """Build the error curves of each model: the means over all corruptions first, then a curve for each corruption.

    Args:
        models: from `read_corrupted_models`.
        bootstrap: number of bootstrap replicates for the intervals of the means; 0 for no intervals.
        seed: random seed of the bootstrap.
    """
    scores = [_Scores(each, "", bootstrap, seed) for each in models if each.errors]
    means = [each.mean_curve() for each in scores if each.levels]
    return [*means, *(curve for each in scores for curve in each.curves())]


def _baseline_of(mine: CorruptedModel, models: list[CorruptedModel], baseline: str) -> "CorruptedModel | str":
    """Return the predictions of a model's baseline, "alexnet" for published errors, or "" without a baseline."""
    if baseline == ALEXNET:
        if mine.data.startswith(("foolbox:", "demo:", "cifar-10-c:")) and mine.data not in _OF_IMAGENET:
            raise Unsupported(
                f"AlexNet's errors are published for ImageNet, not {mine.data}; choose a model as baseline"
            )
        return ALEXNET
    if not baseline:
        large = all(not record.cell.source or _LARGE in record.cell.source for record in mine.records)
        return ALEXNET if large and (mine.data in _OF_IMAGENET or mine.data.startswith("imagenet-c:")) else ""
    same = [each for each in models if each.model == baseline and each.data == mine.data and each.images == mine.images]
    if not same:
        raise Unsupported(f"no results of the baseline {baseline} on the {mine.images} images of {mine.data}")
    return same[-1]


class _Scores:
    """Estimates for one model, including ratios to its baseline."""

    def __init__(
        self,
        mine: CorruptedModel,
        base: CorruptedModel | str,
        bootstrap: int,
        seed: int,
        models: Sequence[CorruptedModel] = (),
    ):
        self.mine, self.base, self.has_intervals = mine, base, bootstrap > 0
        self.n, self.levels, self.corruptions = mine.images, mine.severities, list(mine.errors)
        paired = mine.paired and (
            isinstance(base, str) or (base.paired and base.records[0].names == mine.records[0].names)
        )
        self.counts = resamples(bootstrap if paired else 0, seed)
        self.rates = [self._errors(mine, name) for name in self.corruptions]  # each (severities, R)
        references = {name: self._reference(name) for name in self.corruptions}
        self.references = {name: each for name, each in references.items() if each is not None}
        unpaired = f"{mine.model}: the records have different images, so only error rates have intervals"
        self.findings = [
            *_find_in_scores(mine, base, models),
            *([] if paired else [note("unpaired", unpaired, subject=mine.model)]),
            *self._undefined_ratios(),
        ]

    def by_model(self) -> TableRow:
        mine, clean = self.mine, self.mine.clean
        labels = {"model": mine.model, "data": mine.data, "corruptions": len(self.corruptions)}
        labels |= {"severities": " ".join(map(str, self.levels)), "sequences": len(mine.sequences), "images": self.n}
        metrics: dict[str, Estimate] = dict.fromkeys(("error", "mCE", "RmCE", "mCE/base", "FP", "mFR"), NOTHING)
        if clean is not None:
            metrics["error"] = self._share(clean)
        if self.corruptions and self.levels:
            rates = np.array(self.rates)
            sums = rates.sum(1)
            metrics["mCE"] = self._estimate(float(mean_corruption_error(_point(rates))), sums.mean(0))
            if clean is not None:
                drawn = self._draw(clean.wrong)
                value = relative_corruption_error(_point(rates), float(drawn[0]))
                metrics["RmCE"] = self._estimate(float(value), (sums - len(self.levels) * drawn).mean(0))
        metrics["mCE/base"] = self._ratio([*self.references])
        metrics["FP"] = self._flips([*mine.sequences])
        metrics["mFR"] = self._flip_rate([*mine.sequences])
        return TableRow(labels, metrics)

    def by_corruption(self) -> list[TableRow]:
        rows = []
        for name in dict.fromkeys((*self.corruptions, *self.mine.sequences)):
            labels = {"model": self.mine.model, "data": self.mine.data, "corruption": name, "images": self.n}
            metrics = dict.fromkeys((*(f"E@{level}" for level in SEVERITIES), "CE"), NOTHING)
            if name in self.corruptions and self.levels:
                metrics |= {f"E@{level}": self._share(record) for level, record in self.mine.errors[name].items()}
                mine = self.rates[self.corruptions.index(name)]
                metrics["CE"] = self._estimate(float(corruption_error(_point(mine[None]))[0]), mine.sum(0))
            metrics["CE/base"] = self._ratio([name] if name in self.references else [])
            metrics["FP"] = self._flips([name] if name in self.mine.sequences else [])
            metrics["FP/base"] = self._flip_rate([name] if name in self.mine.sequences else [])
            rows.append(TableRow(labels, metrics))
        return rows

    def mean_curve(self) -> ErrorCurve:
        means = np.mean(self.rates, axis=0)
        return self._curve("", self.levels, [self._estimate(float(drawn[0]), drawn) for drawn in means])

    def curves(self) -> list[ErrorCurve]:
        return [
            self._curve(name, tuple(sorted(levels)), [self._share(levels[level]) for level in sorted(levels)])
            for name, levels in self.mine.errors.items()
        ]

    def _curve(self, name: str, levels: tuple[int, ...], estimates: list[Estimate]) -> ErrorCurve:
        clean = self.mine.clean
        start, before = ((0,), [self._share(clean)]) if clean is not None else ((), [])
        return ErrorCurve(self.mine.model, self.mine.data, name, (*start, *levels), (*before, *estimates))

    def _errors(self, model: CorruptedModel, name: str) -> np.ndarray:
        """Return the error rates under a corruption in every replicate, (severities, R)."""
        return np.array([self._draw(model.errors[name][level].wrong) for level in self.levels])

    def _reference(self, name: str) -> np.ndarray | None:
        """Return the baseline's error rates under a corruption, (severities, R).

        None if the baseline has no such rates.
        """
        if self.base == ALEXNET:
            known = name in BENCHMARK and self.levels == SEVERITIES  # published as a mean over all severities
            return np.full((len(self.levels), len(self.counts(self.n))), alexnet_errors([name])[0]) if known else None
        if isinstance(self.base, str) or not {*self.levels} <= {*self.base.errors.get(name, {})}:
            return None
        return self._errors(self.base, name)

    def _ratio(self, names: list[str]) -> Estimate:
        if not names or not self.levels:
            return NOTHING
        mine = np.array([self.rates[self.corruptions.index(name)] for name in names])
        base = np.array([self.references[name] for name in names])
        value = mean_corruption_error(_point(mine), baseline_errors=_point(base))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = mine.sum(1) / np.where(base.sum(1) > 0, base.sum(1), np.nan)
        return self._estimate(float(value), mean_of_defined([*ratios]))

    def _flips(self, names: list[str]) -> Estimate:
        if not names:
            return NOTHING
        records = [self.mine.sequences[name] for name in names]
        drawn = np.mean([self._draw(flips_of(record)) for record in records], axis=0)
        return self._estimate(float(np.mean([flip_probability_of(record) for record in records])), drawn)

    def _flip_rate(self, names: list[str]) -> Estimate:
        base = {} if isinstance(self.base, str) else self.base.sequences
        both = [(self.mine.sequences[name], base[name]) for name in names if name in base]
        if not both:
            return NOTHING
        mine, theirs = (torch.tensor([flip_probability_of(each) for each in side]) for side in zip(*both, strict=True))
        drawn = [[torch.tensor(self._draw(flips_of(each))) for each in pair] for pair in both]
        return self._estimate(
            float(mean_flip_rate(mine, theirs)), mean_of_defined([flip_rates(*pair).numpy() for pair in drawn])
        )

    def _undefined_ratios(self) -> Iterator[Finding]:
        """Yield notes on ratios whose denominator is 0, because the baseline makes no error or never flips."""
        if isinstance(self.base, str):
            return
        faultless = [name for name, rates in self.references.items() if not rates[:, 0].any()]
        flips = {name: self.base.sequences[name] for name in self.mine.sequences if name in self.base.sequences}
        still = [name for name, record in flips.items() if flip_probability_of(record) == 0]
        lines = (("mCE/base", faultless, "makes no error there"), ("mFR", still, "never flips there"))
        for symbol, names, why in lines:
            if names:
                sentence = f"{{subject}}: {{symbol}} omits {{names}}: {self.base.model} {why}"
                yield note("undefined-ratio", sentence, subject=self.mine.model, symbol=symbol, names=", ".join(names))

    def _draw(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of a value per image in every bootstrap replicate, (R,)."""
        return bootstrap_means(self.counts(len(values)), values[:, None].astype(float))[0].ratio.clip(0, 1)

    def _estimate(self, value: float, drawn: np.ndarray) -> Estimate:
        return interval(np.array([value, *drawn[1:]]), self.n)

    def _share(self, record: CorruptionRecord) -> Estimate:
        return estimate_share([[record.wrong.astype(float)]], has_interval=self.has_intervals)


def _point(rates: np.ndarray) -> torch.Tensor:
    return torch.tensor(rates[..., 0])


def _why_nothing_is_right(mine: CorruptedModel) -> str:
    """Explain why a model is at chance accuracy, such as by a different order of classes; "" if it is above chance."""
    mildest = [levels[min(levels)] for levels in mine.errors.values() if levels]
    records = [mine.clean] if mine.clean is not None else mildest
    if not records:
        return ""
    best = min(records, key=lambda record: record.wrong.mean())
    answered = best.predicted >= 0
    predicted, labels = (torch.tensor(each[answered]).long() for each in (best.predicted, best.labels))
    if not len(labels):
        return ""
    seen = int(max(predicted.max(), labels.max())) + 1  # a record does not contain the number of classes
    why = explain_predictions(predicted, labels, seen)
    images = "clean" if mine.clean is not None else f"{best.cell.corruption} {best.cell.severity}"
    return f"{mine.model}, {images}: {why}" if why else ""


def _find_in_scores(
    mine: CorruptedModel, base: CorruptedModel | str, models: Sequence[CorruptedModel]
) -> Iterator[Finding]:
    made = dict.fromkeys(record.cell.source for record in mine.records if record.cell.source)
    if made:
        sentence = (
            "corrupted like ImageNet-C, but in memory ({by}); the published images of ImageNet-C are stored "
            "as JPEG and are harder"
        )
        yield note("made-in-memory", sentence, by=", ".join(made))
    if base == ALEXNET and mine.errors and mine.severities != SEVERITIES:
        sentence = (
            "no CE/base, because AlexNet's errors are published as means over all five severities; use --baseline"
        )
        yield note("no-baseline", sentence)
    elif base == ALEXNET and mine.errors:
        sentence = (
            "baseline: AlexNet's published errors on 50 000 images of ImageNet-C, not on these {images} of {data}"
        )
        yield note("baseline", sentence, images=mine.images, data=mine.data)
    elif isinstance(base, CorruptedModel):
        yield note("baseline", "baseline: {base} on the same images", base=base.model)
    yield from _find_missing(mine, models)
    if mine.sequences and isinstance(base, str):
        sentence = "no mFR, because AlexNet's flip probabilities are not published; name a model with --baseline"
        yield note("no-baseline-sequences", sentence)
    size = "cifar" if any(_SMALL in record.cell.source for record in mine.records) else "imagenet"
    known = {find_sequence(name, size).finding: name for name in mine.sequences if name in SEQUENCES}
    yield from (note("sequences", f"sequences such as {name}: {text}") for text, name in known.items() if text)
    if why := _why_nothing_is_right(mine):
        yield note("nothing-right", why, state="warn", subject=mine.model)
    if silent := sum(int((record.predicted < 0).any(axis=-1).sum()) for record in mine.records):
        sentence = "{subject}: {count} non-finite outputs count as errors"
        yield note("not-finite", sentence, subject=mine.model, count=silent)


def _find_missing(mine: CorruptedModel, models: Sequence[CorruptedModel]) -> Iterator[Finding]:
    lacking = [name for name in BENCHMARK if name not in mine.errors]
    if mine.errors and lacking and set(mine.errors) & set(BENCHMARK):
        sentence = "{subject}: means are over {count} corruptions; missing: {lacking}"
        yield note(
            "corruptions-missing", sentence, subject=mine.model, count=len(mine.errors), lacking=", ".join(lacking)
        )
    if mine.errors and mine.severities != SEVERITIES:
        levels = ", ".join(map(str, mine.severities)) or "none"
        yield note(
            "severities-missing", "{subject}: sums over severities {levels} only", subject=mine.model, levels=levels
        )
    if mine.errors and mine.clean is None:
        alone = [
            f"{each.images}" for each in models if (each.model, each.data) == (mine.model, mine.data) and each.clean
        ]
        why = f" for the same {mine.images} images (got {', '.join(alone)})" if alone else ""
        yield note(
            "no-clean",
            "{subject}: RmCE needs predictions on clean images{why}; add --clean DATA",
            subject=mine.model,
            why=why,
        )
