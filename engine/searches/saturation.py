"""Saturation radius of an attack: the smallest radius beyond which it fools no more images (CANARY, 3.2.1)."""

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
    """`at-saturation(A)`: a fixed-budget attack at its saturation radius, which is the same for all images."""

    kind = "at-saturation"
    searches_radius = runs_once = chooses_radius = True
    runs = 8
    why_no_surrogate = "the radius would be chosen by querying the model, which a transfer attacker cannot do"

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """Return the threat model at the largest of the radii that are always run."""
        del row
        return replace(threat_model, epsilon=max(saturation_radii(threat_model, components)))

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for minimum-norm attacks, norms without radii, and unsupported settings."""
        del grid
        _check(row, rules, components, given)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> AttackResult:
        """Run `at_saturation`."""
        return at_saturation(row, *nouns, **options)


class Saturation(NamedTuple):
    """Saturation radius (None if the ratio still grows), the radii tried, ascending, and the ratio at each.

    The ratio is the misclassification ratio. `attacked` is the number of attacked images, and `violations` the number
    of invalid results at each radius, which count as not fooled.
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
    highest ratio. The ratio is over the images that the classifier classifies correctly when clean; for a random model
    it is the mean rate over samples.

    The paper instead walks from a first radius: up while the ratio grows significantly, then down until the ratio falls
    significantly. It does not state the first radius, the step length or the significance level. Both rules give the
    same radius if the ratio grows monotonically. Small radii without any success, or many small decreases in a row, can
    stop the walk too early; the rule used here avoids this.

    Args:
        implementation: a fixed-budget implementation, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        norm: norm of the radii.
        budgets: at least two radii; None for the customary one (`default_epsilon`) times 1/16, 1/8, ... 16.
        threshold: smallest significant difference of ratios, 0 to 1; below 1 / N no difference is tolerated.
        targets: target classes, shape (N,), for a targeted attack.
        seed: random seed.
        progress: called with the number of images done after each library call.
        **parameters: canonical parameters; `step_size` may be relative to the radius, as in `search_radius`.

    Returns:
        The radius, the radii tried and the ratio at each. The radius is None if nothing succeeds, or if the ratio still
        rises at the largest radius (it cannot rise beyond 1).

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

    `saturation` has the radii tried and the rate of fooled images at each. `failed` has the radii at which the library
    crashed on every image or cannot run, with the reasons. `radius` is the radius of the result: `saturation.epsilon`,
    or the largest radius tried if the rate still rose there or nothing was fooled.
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

    Nine radii are run. If the threat model sets no limit, the radius is doubled while the rate of fooled images still
    grows at the largest radius. The limit is the largest change that [0, 1] allows. While the smallest radius has the
    highest rate, the radius is halved, up to eight times. The result is that of the smallest radius whose rate is at
    most 0.01 below the highest. The radius is the same for all images, and the run equals that of `run_attack` at this
    radius.

    Args:
        implementation: a fixed-budget implementation, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, targeted, and the largest radius. Without epsilon, the radii start as 1/16 to 16 times the
            customary one (`default_epsilon`).
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed.
        first: index of the first image in the whole data set.
        logits: logits of the clean images, if known.
        eight_bit: whether success and distance are measured on 8-bit images, also in the search.
        progress: called with the increase in progress since the last call, as a number of images.
        **parameters: canonical parameters; `max_queries` applies at each radius, and `step_size` may be relative to the
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
    """Return the error to raise if no radius gave a result: a library's crash, else the error at the largest radius."""
    crash = next((error for error in errors if isinstance(error, AttackFailed)), None)
    return errors[-1] if crash is None else AttackFailed(f"{row.name} crashed at every radius: {crash}")


def check_has_radius(row: Implementation) -> None:
    """Raise Unsupported for a minimum-norm attack, which has no radius."""
    if canonical_attack(row).kind != "fixed-budget":
        raise Unsupported(f"{row.name} is a minimum-norm attack: it has no radius to choose")


def _check(row: Implementation, threat_model: ThreatModel, components: int, parameters: Values) -> None:
    """Raise an error for settings that are unsupported at one of the radii."""
    check_learns_nothing(row)
    check_has_radius(row)
    for radius in saturation_radii(threat_model, components):
        check_support(row, replace(threat_model, epsilon=radius), resolve_step_size(parameters, radius))


def saturation_radii(threat_model: ThreatModel, components: int) -> list[float]:
    """Return the nine radii that are always run, ascending.

    Each is twice the previous one, up to the limit of the threat model.

    Raises:
        Unsupported: for a norm without radii.
    """
    if threat_model.epsilon is None:
        return default_budgets(threat_model.norm, components)
    halves = [threat_model.epsilon / 2**number for number in range(len(DOUBLINGS))]
    least = min(LEAST_L0, threat_model.epsilon)
    return sorted({max(least, float(int(half))) if threat_model.norm == "l0" else half for half in halves})


def _wider_radii(threat_model: ThreatModel, upper: float, components: int) -> list[float]:
    """Return the larger radii to run while the fooled rate grows; [] if the threat model's limit is reached."""
    largest, wider = largest_change(threat_model.norm, components), [upper]
    while threat_model.epsilon is None and wider[-1] < largest:
        wider.append(min(2 * wider[-1], largest))
    return wider[1:]


def _narrower_radii(threat_model: ThreatModel, lower: float) -> list[float]:
    """Return the smaller radii to run while the smallest radius is saturated; in l0 at least `LEAST_L0` components."""
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
    """Whether a larger radius may fool more: none is fooled yet, or the last radius has the highest ratio, below 1."""
    highest = max(ratios.values())
    return highest == 0 or (highest < 1 and _near(ratios, threshold)[0] == max(ratios))


def _settled(ratios: Mapping[float, float], threshold: float = THRESHOLD, largest: float = torch.inf) -> float | None:
    """Return the smallest radius whose ratio is near the highest; None if larger radii may fool more images.

    Args:
        ratios: misclassification ratio at each radius, ascending.
        threshold: smallest significant difference of ratios.
        largest: largest possible radius.
    """
    if max(ratios.values()) > 0 and (max(ratios) == largest or not _may_grow(ratios, threshold)):
        return _near(ratios, threshold)[0]
    return None


def default_budgets(norm: Norm, components: int) -> list[float]:
    """Return the customary radius times 1/16, 1/8, ... 16, ascending. Raises Unsupported for a norm without radii."""
    customary = default_epsilon(norm, components)
    if customary is None:
        raise Unsupported(f"expected a norm with radii, got {norm}")
    largest = components if norm in ("l0", "l1") else torch.inf
    sizes = [min(customary * 2.0**doubling, largest) for doubling in DOUBLINGS]
    return sorted({max(LEAST_L0, float(int(size))) if norm == "l0" else size for size in sizes})
