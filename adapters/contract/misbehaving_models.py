"""Runs attacks on models that misbehave on purpose, and checks that no false success or false robustness is reported.

Every model is small and takes images of 3 x 16 x 16. Its outputs are wrong in some way, but the true logits are known.
An implementation passes if the true logits confirm every image that is reported as fooled or robust. All other images
must be reported as invalid, or an error must be raised.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...errors import AttackFailed, DavylampError, MissingLibrary, ModelFailed, Unsupported
from ..attack import Implementation
from ..catalogue.lookup import IMPLEMENTATIONS, accepts_parameter, canonical_attack, check_support, find_implementation
from ..models.classifier import Classifier
from ..result import AttackResult
from ..running.judge import quantise
from ..running.run import run_attack
from ..threat_model import Norm, ThreatModel

SIDE, CLASSES, COUNT = 16, 4, 4
_TIMES_LEAST = 4  # radius of a fixed-budget attack, in perturbations that are enough for every image
_QUICK: Mapping[str, Any] = {
    "steps": 10,
    "binary_search_steps": 3,
    "restarts": 1,
    "samples": 5,
    "scales": 2,
    "population": 6,
    "candidates": 3,
    "noise_samples": 10,
    "directions": 20,
    "translations": 2,
    "rotations": 2,
    "trials": 5,
    "initial_evaluations": 10,
    "max_evaluations": 50,
    "diversity_probability": 0.0,
    "max_queries": 200,
}
_DUAL = {"linf": 1.0, "l2": 2.0, "l1": float("inf")}


class MisbehavingModel(NamedTuple):
    """A model that misbehaves on purpose, and a function that returns the true logits of images."""

    module: nn.Module
    truth: Callable[[Tensor], Tensor]


class FalseResult(NamedTuple):
    """Result of checking one implementation on one misbehaving model.

    Attributes:
        implementation: name of the implementation.
        norm: the norm.
        plant: name of the misbehaving model, one of `PLANTS`.
        complaint: description of the false report. "" if all reported results are true.
        outcome: numbers of images that were reported as fooled, robust and invalid, or the raised error.
    """

    implementation: str
    norm: str
    plant: str
    complaint: str
    outcome: str


class _Function(nn.Module):
    """A module that computes a function of a base model and of images.

    The base model is a submodule with a linear layer, because some attacks read layers.
    """

    def __init__(self, base: nn.Module, function: Callable[[nn.Module, Tensor], Tensor]):
        super().__init__()
        self.base, self.function = base, function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self.base, inputs)


class MisbehavingSetup(NamedTuple):
    """The correct linear model, 8-bit images that it classifies correctly, and radii that suffice to fool it."""

    base: nn.Module
    inputs: Tensor
    labels: Tensor
    radii: Mapping[Norm, float]


def make_setting() -> MisbehavingSetup:
    """Build the correct model, images and radii. All calls return the same weights and images."""
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(3 * SIDE * SIDE, CLASSES)
    layer.weight.data = 50 * torch.randn(layer.weight.shape, generator=generator)
    inputs = quantise((0.5 + 0.02 * torch.randn(COUNT, 3, SIDE, SIDE, generator=generator)).clamp(0, 1))
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    base = nn.Sequential(nn.Flatten(), layer).eval().requires_grad_(False)
    logits = base(inputs)
    labels, weight = logits.argmax(1), layer.weight.data
    gaps = logits.gather(1, labels[:, None]) - logits
    radii: dict[Norm, float] = {"l0": 60.0}
    for norm in ("linf", "l2", "l1"):
        sizes = torch.linalg.vector_norm(weight[labels][:, None] - weight, ord=_DUAL[norm], dim=2)
        least = (gaps / sizes.clamp(min=1e-12)).masked_fill(gaps == 0, torch.inf).amin(1)
        radii[norm] = _TIMES_LEAST * float(least.max())
    return MisbehavingSetup(base, inputs, labels, radii)


def _in_place(setting: MisbehavingSetup) -> MisbehavingModel:
    def function(base: nn.Module, x: Tensor) -> Tensor:
        return base(x.mul_(0.97).add_(0.015))

    return MisbehavingModel(_Function(setting.base, function), lambda x: setting.base(x * 0.97 + 0.015))


def _nan_off_the_clean_image(setting: MisbehavingSetup) -> MisbehavingModel:
    def function(base: nn.Module, x: Tensor) -> Tensor:
        near = torch.cdist(x.flatten(1), setting.inputs.flatten(1).to(x)).amin(1) < 1e-4
        return base(x).where(near[:, None], torch.nan)

    return MisbehavingModel(_Function(setting.base, function), lambda x: function(setting.base, x))


def _batch_statistics(setting: MisbehavingSetup) -> MisbehavingModel:
    def function(base: nn.Module, x: Tensor) -> Tensor:
        return base(nn.functional.batch_norm(x, None, None, training=True) * 0.02 + 0.5)

    return MisbehavingModel(
        _Function(setting.base, function), lambda x: torch.cat([function(setting.base, i[None]) for i in x])
    )


def _saturated(setting: MisbehavingSetup) -> MisbehavingModel:
    return MisbehavingModel(_Function(setting.base, lambda base, x: 1e6 * base(x)), lambda x: 1e6 * setting.base(x))


def _constant(setting: MisbehavingSetup) -> MisbehavingModel:
    fixed = setting.base(setting.inputs).mean(0)
    return MisbehavingModel(
        _Function(setting.base, lambda base, x: 0 * base(x) + fixed), lambda x: fixed.expand(len(x), -1)
    )


def _random(setting: MisbehavingSetup) -> MisbehavingModel:
    def function(base: nn.Module, x: Tensor) -> Tensor:
        return 0 * base(x) + torch.randn(len(x), CLASSES, device=x.device)

    return MisbehavingModel(_Function(setting.base, function), lambda x: torch.full((len(x), CLASSES), torch.nan))


def _lost_by_rounding(setting: MisbehavingSetup) -> MisbehavingModel:
    def function(base: nn.Module, x: Tensor) -> Tensor:
        off_grid = (255 * x - (255 * x).detach().round()).abs().flatten(1).mean(1, keepdim=True)
        clean = base(setting.inputs.to(x))
        nearest = torch.cdist(x.flatten(1), setting.inputs.flatten(1).to(x)).argmin(1)
        return clean[nearest] * (1 - 400 * off_grid)

    return MisbehavingModel(_Function(setting.base, function), lambda x: function(setting.base, x))


def _fails_off_the_clean_image(setting: MisbehavingSetup) -> MisbehavingModel:
    def function(base: nn.Module, x: Tensor) -> Tensor:
        if (torch.cdist(x.flatten(1), setting.inputs.flatten(1).to(x)).amin(1) > 1e-4).any():
            raise RuntimeError("planted error: this model accepts only clean images")
        return base(x)

    return MisbehavingModel(_Function(setting.base, function), lambda x: torch.full((len(x), CLASSES), torch.nan))


PLANTS: Mapping[str, Callable[[MisbehavingSetup], MisbehavingModel]] = {
    "in-place": _in_place,
    "nan": _nan_off_the_clean_image,
    "batch-statistics": _batch_statistics,
    "saturated": _saturated,
    "constant": _constant,
    "random": _random,
    "lost-by-rounding": _lost_by_rounding,
    "fails": _fails_off_the_clean_image,
}


def run_misbehaving_model_checks(
    rows: Sequence[str | Implementation] | None = None,
    *,
    plants: Sequence[str] | None = None,
    every_norm: bool = True,
    norms: Sequence[Norm] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Iterator[FalseResult]:
    """Run implementations on misbehaving models, and compare the reported results with the true results.

    Args:
        rows: implementations or their names. None for all implementations that can run.
        plants: names of misbehaving models, from `PLANTS`. None for all models.
        every_norm: whether to use all norms of an implementation, instead of only the first norm.
        norms: norms to use. None for no restriction.
        parameters: canonical parameters for the attacks. They override the default values of the checks, which are
            chosen for speed. An implementation gets only the parameters that it accepts.

    Yields:
        A `FalseResult` for each implementation, norm and model, as soon as it is known.

    Raises:
        UnknownName: if an implementation does not exist.
        MissingLibrary: if the library of a named implementation is not installed.
    """
    setting = make_setting()
    chosen = [row if isinstance(row, Implementation) else find_implementation(row) for row in rows or IMPLEMENTATIONS]
    for row in chosen:
        if row.broken:
            continue
        for norm in list(row.classes)[: None if every_norm else 1]:
            if norms is None or norm in norms:
                yield from _check_row(row, norm, setting, plants or list(PLANTS), parameters or {})  # type: ignore[arg-type]


def _check_row(
    row: Implementation, norm: Norm, setting: MisbehavingSetup, plants: Sequence[str], parameters: Mapping[str, Any]
) -> Iterator[FalseResult]:
    bound = canonical_attack(row).kind == "fixed-budget" and norm != "unrestricted"
    threat_model = ThreatModel(norm, setting.radii[norm] if bound else None, targeted=False)
    words = {name: value for name, value in {**_QUICK, **parameters}.items() if accepts_parameter(row, name)}
    check_support(row, threat_model, words)
    honest = _run(row, setting.base, setting, threat_model, words)
    for name in plants:
        planted = PLANTS[name](setting)
        before = setting.inputs.clone()
        result = _run(row, planted.module, setting, threat_model, words)
        complaint = "" if isinstance(result, DavylampError) else _judge(name, result, honest, planted, setting)
        if isinstance(result, AttackFailed) and name == "fails":
            complaint = "an error of the model was reported as an error of the library"
        if not torch.equal(setting.inputs, before):
            complaint = "the caller's images were changed"
        yield FalseResult(row.name, norm, name, complaint, _describe(result))


def _run(
    row: Implementation,
    module: nn.Module,
    setting: MisbehavingSetup,
    threat_model: ThreatModel,
    words: Mapping[str, Any],
) -> AttackResult | DavylampError:
    """Run the attack on a misbehaving model. Returns its result, or the error if an error is a correct report here.

    An error is a correct report if the library crashed, or if the model cannot be attacked.
    """
    logits = setting.base(setting.inputs)  # passed in, because the random model could not be attacked without
    classifier = Classifier(module, num_classes=CLASSES)
    try:
        return run_attack(row, classifier, setting.inputs, setting.labels, threat_model, logits=logits, **words)
    except MissingLibrary:
        raise
    except (AttackFailed, ModelFailed, Unsupported) as error:
        return error


def _judge(
    name: str,
    result: AttackResult,
    honest: AttackResult | DavylampError,
    planted: MisbehavingModel,
    setting: MisbehavingSetup,
) -> str:
    """Describe the images whose reported results are false. "" if all reported results are true."""
    with torch.no_grad():
        says, rounded = planted.truth(result.adv_inputs), planted.truth(quantise(result.adv_inputs))
    wrong = (says.argmax(1) != setting.labels) & torch.isfinite(says).all(1)
    right = (says.argmax(1) == setting.labels) & torch.isfinite(says).all(1)
    lost = (rounded.argmax(1) == setting.labels) | ~torch.isfinite(rounded).all(1)
    false = {
        "false success": result.success & ~wrong,
        "false success after rounding to 8 bits": result.success_8bit & lost,
        "false robust": result.robust & ~right,
        "no outcome (neither fooled, robust nor invalid)": result.attacked
        & ~(result.success | result.robust | result.invalid),
    }
    if name == "saturated" and isinstance(honest, AttackResult):
        # The classes are those of the honest model: what fools it is known to be there.
        false["false robust"] = false["false robust"] | (result.robust & honest.success)
    return "; ".join(f"{kind} on {int(images.sum())} images" for kind, images in false.items() if images.any())


def _describe(result: AttackResult | DavylampError) -> str:
    if isinstance(result, DavylampError):
        return " ".join(str(result).split())[:120]
    kinds = sorted({kind for kinds in result.violations for kind in kinds})
    counts = {name: int(getattr(result, name).sum()) for name in ("success", "robust", "invalid")}
    summary = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    return summary + (f" ({', '.join(kinds)})" if kinds else "")
