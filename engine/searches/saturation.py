"""Saturation radius of an attack: the smallest radius beyond which the attack fools no more images (CANARY, 3.2.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, ThreatModel, canonical_attack, run_attack
from ...adapters.catalogue.default_threat_model import default_epsilon
from ...adapters.catalogue.lookup import check_support, resolve_implementation
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.models.images import check_images
from ...adapters.threat_model import Norm
from ...errors import AttackFailed, InvalidInput, Unsupported
from .kinds import Grid, Search, Values, check_learns_nothing
from .radius_search import largest_change
from .single import round_to_8bit

THRESHOLD = 0.01
LEAST_L0 = 3.0  # one colour pixel: some attacks cannot run below it; JSMA changes two components at a time
DOUBLINGS = range(-4, 5)  # powers of two of the customary radius: linf 0.25/255 to 64/255
_HALVINGS = 8  # halvings of the smallest radius, if it has the highest success already
_ROUNDING = 1e-9  # tolerance in the difference of two ratios
_SPENT = ("forwards", "backwards", "seconds")


class AtSaturation(Search):
    """`at-saturation(A)`: runs a fixed-budget attack at its saturation radius, which is the same for all images."""

    kind = "at-saturation"
    searches_radius = runs_once = chooses_radius = True
    runs = 8
    why_no_surrogate = "the radius would be chosen by querying the model, which a transfer attacker cannot do"

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """Return the threat model with the largest of the radii that are run in any case."""
        del row
        return replace(threat_model, epsilon=max(saturation_radii(threat_model, components)))

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for minimum-norm attacks, for norms without radii, and for unsupported settings."""
        del grid
        _check(row, rules, components, given)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> AttackResult:
        """Run `at_saturation`."""
        return at_saturation(row, *nouns, **options)


class Saturation(NamedTuple):
    """Saturation radius of an attack, and the ratio of fooled images at each radius that was tried.

    Args:
        epsilon: the saturation radius. None if no image is fooled, or if larger radii may fool more images.
        budgets: the radii that were tried, ascending.
        ratios: misclassification ratio at each radius.
        threshold: smallest significant difference of ratios.
        attacked: number of attacked images.
        violations: number of invalid results at each radius, which count as not fooled.
    """

    epsilon: float | None
    budgets: tuple[float, ...]
    ratios: tuple[float, ...]
    threshold: float
    attacked: int
    violations: tuple[int, ...] = ()


def saturating_budget(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    implementation: Any,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    norm: Norm,
    *,
    budgets: Sequence[float] | None = None,
    threshold: float = THRESHOLD,
    targets: Tensor | None = None,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
    **parameters: Any,
) -> Saturation:
    """Find the smallest radius at which a fixed-budget attack reaches its maximum success.

    All radii are run. The result is the smallest radius whose misclassification ratio is at most `threshold` below the
    highest ratio. The ratio is over the images that the classifier classifies correctly when clean. For a random model,
    the ratio is the mean rate over samples.

    CANARY's rule is different: it increases a first radius while the ratio grows significantly, and then decreases it
    until the ratio falls significantly. CANARY does not state the first radius, the step length or the significance
    level. Both rules give the same radius if the ratio grows monotonically. CANARY's rule can stop too early at small
    radii without any success, or after many small decreases in a row.

    Args:
        implementation: a fixed-budget implementation, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        norm: norm of the radii.
        budgets: at least two radii. None for the customary radius (`default_epsilon`) times 1/16, 1/8, ... 16.
        threshold: smallest significant difference of ratios, 0 to 1. Below 1 / N, no difference is tolerated.
        targets: target classes, shape (N,), for a targeted attack.
        seed: random seed.
        progress: called after each library call, with the number of images of the call.
        **parameters: canonical parameters. `step_size` may be relative to the radius, as in `search_radius`.

    Returns:
        The saturation radius, the radii tried and the ratio at each radius. The saturation radius is None if nothing
        succeeds, or if the ratio still rises at the largest radius and is below 1.

    Raises:
        Unsupported: if the attack is a minimum-norm attack, or does not support a parameter.
        InvalidInput: if an argument has a wrong value, or the classifier misclassifies every clean image.
        AttackFailed: if the library crashed on every image at a radius.
    """
    row = resolve_implementation(implementation)
    check_has_radius(row)
    if not 0 <= threshold <= 1:
        raise InvalidInput(f"expected a threshold from 0 to 1, got {threshold}")
    check_images(inputs)
    chosen = default_budgets(norm, inputs[0].numel()) if budgets is None else sorted(set(map(float, budgets)))
    if len(chosen) < 2:
        raise InvalidInput(f"expected at least two different radii as `budgets`, got {list(budgets or ())}")
    balls = [ThreatModel(norm, budget, targets is not None) for budget in chosen]
    settings = [check_support(row, ball, resolve_step_size(parameters, ball.epsilon)) for ball in balls]
    shared: dict[str, Any] = {"targets": targets, "seed": seed, "progress": progress}
    ratios, violations, attacked = dict[float, float](), [], 0
    for ball, values in zip(balls, settings, strict=True):
        result = run_attack(row, classifier, inputs, labels, ball, **shared, **values)
        if not result.attacked.any():
            raise InvalidInput("the classifier misclassifies every clean image")
        attacked = int(result.attacked.sum())
        ratios[ball.epsilon or 0.0] = _share_fooled(result)
        violations.append(int(result.invalid.sum()))
    settled = _settled(ratios, threshold)
    return Saturation(settled, tuple(chosen), tuple(ratios.values()), threshold, attacked, tuple(violations))


@dataclass(frozen=True, kw_only=True)
class SaturatedResult(AttackResult):
    """Result of an attack at its saturation radius. Passes and seconds include the runs at all radii.

    Args:
        saturation: the saturation radius, the radii tried and the rate of fooled images at each radius.
        radius: radius of this result: the saturation radius, or the largest radius tried if there is none.
        failed: radii at which the library crashed on every image or does not support the attack, with the reasons.
    """

    saturation: Saturation
    radius: float
    failed: Mapping[float, str]


def at_saturation(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    implementation: Any,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    targets: Tensor | None = None,
    seed: int = 0,
    first: int = 0,
    logits: Tensor | None = None,
    eight_bit: bool = False,
    progress: Callable[[int], object] | None = None,
    **parameters: Any,
) -> SaturatedResult:
    """Run a fixed-budget attack at doubling radii, and return the run at its saturation radius.

    Nine radii are run. If the threat model has no radius, the radius is doubled further while the rate of fooled images
    still grows, up to the largest change that [0, 1] allows. While the smallest radius has the highest rate, the radius
    is halved, up to eight times. The result is the run at the smallest radius whose rate is at most 0.01 below the
    highest rate. The radius is the same for all images, and the examples equal those of `run_attack` at this radius.

    Args:
        implementation: a fixed-budget implementation, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, targeted, and the largest radius. Without epsilon, the nine radii are 1/16 to 16 times the
            customary radius (`default_epsilon`).
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed.
        first: index of the first image in the whole data set.
        logits: logits of the clean images. None to compute them.
        eight_bit: whether success and distance are measured on 8-bit images, also in the search.
        progress: called with the increase in progress since the last call, as a number of images.
        **parameters: canonical parameters. `max_queries` applies at each radius. `step_size` may be relative to the
            radius.

    Raises:
        Unsupported: for a minimum-norm attack, which has no radius, or unsupported settings.
        InvalidInput: if an argument has a wrong value.
        AttackFailed: if the library crashed on every image at every radius.
    """
    row = resolve_implementation(implementation)
    components = inputs[0].numel()
    _check(row, threat_model, components, parameters)
    radii = saturation_radii(threat_model, components)
    known: dict[str, Any] = {"targets": targets, "seed": seed, "first": first, "logits": logits}
    kept: dict[float, AttackResult] = {}
    ratios: dict[float, float] = {}
    violated: dict[float, int] = {}
    spent: list[Tensor] = []
    failed: dict[float, AttackFailed | Unsupported] = {}

    def run(radius: float) -> None:
        nonlocal kept, ratios, spent
        ball = replace(threat_model, epsilon=radius)
        try:
            result = run_attack(row, classifier, inputs, labels, ball, **known, **resolve_step_size(parameters, radius))
        except (AttackFailed, Unsupported) as error:
            failed[radius] = error
            return
        result = round_to_8bit(result, classifier, inputs) if eight_bit else result
        costs = [getattr(result, name) for name in _SPENT]
        spent = [before + cost for before, cost in zip(spent, costs, strict=True)] if spent else costs
        ratios = dict(sorted({**ratios, radius: _share_fooled(result)}.items()))
        violated[radius] = int(result.invalid.sum())
        kept = {each: one for each, one in {**kept, radius: result}.items() if each in _near(ratios)}

    for number, radius in enumerate(radii):
        run(radius)
        if progress is not None:
            progress(len(labels) * (number + 1) // len(radii) - len(labels) * number // len(radii))
    if not ratios:
        raise _nothing_ran(row, list(failed.values()))
    for radius in _wider_radii(threat_model, radii[-1], components):
        if _may_grow(ratios):
            run(radius)
    for radius in _narrower_radii(threat_model, radii[0]):
        if max(ratios.values()) > 0 and _near(ratios)[0] == min(ratios):
            run(radius)
    settled = _settled(ratios, largest=largest_change(threat_model.norm, components))
    radius = max(ratios) if settled is None else settled
    violations, attacked = tuple(violated[each] for each in ratios), int(kept[radius].attacked.sum())
    saturation = Saturation(settled, (*ratios,), (*ratios.values(),), THRESHOLD, attacked, violations)
    names = {"implementation": AtSaturation(row.name).name, "threat_model": threat_model, "parameters": parameters}
    why = {each: str(error) for each, error in failed.items()}
    whole = {**vars(kept[radius]), **dict(zip(_SPENT, spent, strict=True)), **names}
    return SaturatedResult(**whole, saturation=saturation, radius=radius, failed=why)


def _nothing_ran(row: Implementation, errors: Sequence[AttackFailed | Unsupported]) -> Exception:
    """Return the error to raise if no radius gave a result: a crash of the library, otherwise the last error."""
    crash = next((error for error in errors if isinstance(error, AttackFailed)), None)
    return errors[-1] if crash is None else AttackFailed(f"{row.name} crashed at every radius: {crash}")


def check_has_radius(row: Implementation) -> None:
    """Raise an error for a minimum-norm attack, which has no radius.

    Raises:
        Unsupported: if the attack is a minimum-norm attack.
    """
    if canonical_attack(row).kind != "fixed-budget":
        raise Unsupported(
            f"{row.name} is a minimum-norm attack, which has no saturation radius; use a fixed-budget attack"
        )


def _check(row: Implementation, threat_model: ThreatModel, components: int, parameters: Values) -> None:
    """Raise an error for settings that are unsupported at one of the nine radii."""
    check_learns_nothing(row)
    check_has_radius(row)
    for radius in saturation_radii(threat_model, components):
        check_support(row, replace(threat_model, epsilon=radius), resolve_step_size(parameters, radius))


def saturation_radii(threat_model: ThreatModel, components: int) -> list[float]:
    """Return the nine radii that are run in any case, ascending.

    Each radius is twice the previous radius. The largest is the radius of the threat model, or 16 times the customary
    radius without one. In l0, radii are whole numbers, and there may be fewer of them.

    Raises:
        Unsupported: for a norm without radii.
    """
    if threat_model.epsilon is None:
        return default_budgets(threat_model.norm, components)
    halves = [threat_model.epsilon / 2**number for number in range(len(DOUBLINGS))]
    least = min(LEAST_L0, threat_model.epsilon)
    return sorted({max(least, float(int(half))) if threat_model.norm == "l0" else half for half in halves})


def _wider_radii(threat_model: ThreatModel, upper: float, components: int) -> list[float]:
    """Return the larger radii to run while the fooled rate grows; empty if the threat model has a radius."""
    largest, wider = largest_change(threat_model.norm, components), [upper]
    while threat_model.epsilon is None and wider[-1] < largest:
        wider.append(min(2 * wider[-1], largest))
    return wider[1:]


def _narrower_radii(threat_model: ThreatModel, lower: float) -> list[float]:
    """Return the smaller radii to run while the smallest radius has the highest rate.

    In l0, these radii are at least `LEAST_L0` components.
    """
    halves = [lower / 2**number for number in range(1, _HALVINGS + 1)]
    if threat_model.norm != "l0":
        return halves
    return sorted({float(int(half)) for half in halves if half >= LEAST_L0}, reverse=True)


def _share_fooled(result: AttackResult) -> float:
    """Return the rate of attacked images that are fooled; for a random model, the mean rate of fooled samples."""
    return float(result.fooled_rate.sum()) / max(1, int(result.attacked.sum()))


def _near(ratios: Mapping[float, float], threshold: float = THRESHOLD) -> list[float]:
    """Return the radii, ascending, at which the ratio is at most `threshold` below the highest ratio."""
    least = max(ratios.values()) - threshold - _ROUNDING
    return [radius for radius, ratio in ratios.items() if ratio >= least]


def _may_grow(ratios: Mapping[float, float], threshold: float = THRESHOLD) -> bool:
    """Whether a larger radius may fool more images.

    True if no image is fooled, or if only the last radius has nearly the highest ratio and this ratio is below 1.
    """
    highest = max(ratios.values())
    return highest == 0 or (highest < 1 and _near(ratios, threshold)[0] == max(ratios))


def _settled(ratios: Mapping[float, float], threshold: float = THRESHOLD, largest: float = torch.inf) -> float | None:
    """Return the saturation radius: the smallest radius whose ratio is near the highest ratio.

    None if larger radii may fool more images.

    Args:
        ratios: misclassification ratio at each radius, ascending.
        threshold: smallest significant difference of ratios.
        largest: largest possible radius.
    """
    if max(ratios.values()) > 0 and (max(ratios) == largest or not _may_grow(ratios, threshold)):
        return _near(ratios, threshold)[0]
    return None


def default_budgets(norm: Norm, components: int) -> list[float]:
    """Return the customary radius times 1/16, 1/8, ... 16, ascending.

    Raises:
        Unsupported: for a norm without radii.
    """
    customary = default_epsilon(norm, components)
    if customary is None:
        raise Unsupported(f"expected a norm with radii, got {norm}")
    largest = components if norm in ("l0", "l1") else torch.inf
    sizes = [min(customary * 2.0**doubling, largest) for doubling in DOUBLINGS]
    return sorted({max(LEAST_L0, float(int(size))) if norm == "l0" else size for size in sizes})
