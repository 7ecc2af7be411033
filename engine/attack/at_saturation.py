"""An attack at the radius where its success stops growing (CANARY, 3.2.1), which is searched over all of its images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, ThreatModel, attack_of, run_attack
from ...adapters.catalogue.lookup import check_support, row_of
from ...adapters.catalogue.step_size import resolve_step
from ...errors import AttackFailed, Unsupported
from ..search import search_of
from .best_effort import check_learns_nothing, largest_change, on_pixels
from .saturation import DOUBLINGS, LEAST_L0, THRESHOLD, Saturation, default_budgets, is_near

_HALVINGS = 8  # of the smallest radius, where that already loses nothing
_SPENT = ("forwards", "backwards", "seconds")


@dataclass(frozen=True, kw_only=True)
class SaturatedResult(AttackResult):
    """What an attack found at its saturating radius; passes and seconds are those of the runs at all radii.

    `saturation` has the radii that were run and the share fooled at each, `failed` those where the library crashed on
    every image or cannot be run, with why. `radius` is where the result is from:
    `saturation.epsilon`, or, where the share still grew at the largest radius or nothing was fooled, that radius.
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
    pixels: bool = False,
    progress: Callable[[int], object] | None = None,
    **parameters: Any,
) -> SaturatedResult:
    """Run a fixed-budget attack at radii that double, and keep the run at the smallest that loses nothing.

    Nine radii are run; while the share of fooled images still grows at the last one and the threat model sets no
    limit, twice as large ones follow, up to the largest change that [0, 1] allows, where it cannot grow any more; while
    the first one loses nothing, half as large ones follow, up to eight. The radius is the smallest whose share is at
    most 0.01 below the highest. It belongs to all images together: the run is what `run_attack` gives at that radius.

    Args:
        implementation: a fixed-budget row, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, targeted, and the largest radius; without epsilon the radii are 1/16 to 16 of the customary
            one (`default_epsilon`) at first.
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed.
        first: place of the first image in the whole data set.
        logits: of the clean images, where they are known.
        pixels: success and distance count on images of 8 bits, also in the search.
        progress: called with the number of images that the work since the last call amounts to.
        **parameters: canonical parameters; `max_queries` holds at each radius, and `step_size` may be relative to it.

    Raises:
        Unsupported: for a minimum-norm row, which has no radius, or what the row cannot do.
        InvalidInput: if an argument has a wrong value.
        AttackFailed: if the library crashed on every image at every radius.
    """
    row = row_of(implementation)
    components = inputs[0].numel()
    check_saturation(row, threat_model, components, parameters)
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
            result = run_attack(row, classifier, inputs, labels, ball, **known, **resolve_step(parameters, radius))
        except (AttackFailed, Unsupported) as error:
            failed[radius] = error
            return
        result = on_pixels(result, classifier, inputs) if pixels else result
        costs = [getattr(result, name) for name in _SPENT]
        spent = [before + cost for before, cost in zip(spent, costs, strict=True)] if spent else costs
        share = float(result.fooled_share.sum()) / max(1, int(result.attacked.sum()))
        ratios = dict(sorted({**ratios, radius: share}.items()))
        violated[radius] = int(result.violated.sum())
        kept = {each: one for each, one in {**kept, radius: result}.items() if each in _near(ratios)}

    for number, radius in enumerate(radii):
        run(radius)
        if progress is not None:
            progress(len(labels) * (number + 1) // len(radii) - len(labels) * number // len(radii))
    if not ratios:
        raise _nothing_ran(row, list(failed.values()))
    for radius in _wider_radii(threat_model, radii[-1], components):
        if _goes_on(ratios):
            run(radius)
    for radius in _narrower_radii(threat_model, radii[0]):
        if max(ratios.values()) > 0 and _near(ratios)[0] == min(ratios):
            run(radius)
    last = max(ratios)
    seen = max(ratios.values()) > 0 and (not _goes_on(ratios) or last == largest_change(threat_model.norm, components))
    radius = _near(ratios)[0] if seen else last
    chosen = kept[radius]
    attacked = int(chosen.attacked.sum())
    settled, violations = radius if seen else None, tuple(violated[each] for each in ratios)
    saturation = Saturation(settled, (*ratios,), (*ratios.values(),), THRESHOLD, attacked, violations)
    names = {
        "implementation": search_of("at-saturation", [row.name]).name,
        "threat_model": threat_model,
        "parameters": parameters,
    }
    why = {each: str(error) for each, error in failed.items()}
    whole = {**vars(chosen), **dict(zip(_SPENT, spent, strict=True)), **names}
    return SaturatedResult(**whole, saturation=saturation, radius=radius, failed=why)


def _nothing_ran(row: Implementation, errors: Sequence[AttackFailed | Unsupported]) -> Exception:
    """What to raise where no radius gave a result: a refusal if there is nothing else, that of the largest radius."""
    crash = next((error for error in errors if isinstance(error, AttackFailed)), None)
    return errors[-1] if crash is None else AttackFailed(f"{row.name} crashed at every radius: {crash}")


def check_saturation(
    row: Implementation, threat_model: ThreatModel, components: int, parameters: Mapping[str, Any]
) -> None:
    """Refuse what no run could do, at any of the radii.

    Raises:
        Unsupported: for a minimum-norm row, a threat model without a ball, or what the row cannot do.
        UnknownName: if a parameter is not in the vocabulary.
        InvalidInput: if a parameter has a wrong value.
    """
    check_learns_nothing(row)
    if attack_of(row).kind != "fixed-budget":
        raise Unsupported(f"{row.name} looks for the smallest change by itself: it has no radius to choose")
    for radius in saturation_radii(threat_model, components):
        check_support(row, replace(threat_model, epsilon=radius), resolve_step(parameters, radius))


def saturation_radii(threat_model: ThreatModel, components: int) -> list[float]:
    """The radii that are run whatever comes of them, ascending: nine, each twice the one before, up to a limit.

    Raises:
        Unsupported: for a threat model without a ball.
    """
    if threat_model.epsilon is None:
        return default_budgets(threat_model.norm, components)
    halves = [threat_model.epsilon / 2**number for number in range(len(DOUBLINGS))]
    least = min(LEAST_L0, threat_model.epsilon)
    return sorted({max(least, float(int(half))) if threat_model.norm == "l0" else half for half in halves})


def _wider_radii(threat_model: ThreatModel, upper: float, components: int) -> list[float]:
    """The radii that follow while the share grows; none beyond a limit that was given."""
    largest, wider = largest_change(threat_model.norm, components), [upper]
    while threat_model.epsilon is None and wider[-1] < largest:
        wider.append(min(2 * wider[-1], largest))
    return wider[1:]


def _narrower_radii(threat_model: ThreatModel, lower: float) -> list[float]:
    """The radii that follow while the smallest one loses nothing; of l0 none below `LEAST_L0` components."""
    halves = [lower / 2**number for number in range(1, _HALVINGS + 1)]
    if threat_model.norm != "l0":
        return halves
    return sorted({float(int(half)) for half in halves if half >= LEAST_L0}, reverse=True)


def _near(ratios: Mapping[float, float]) -> list[float]:
    """The radii, ascending, at which the share is near the highest."""
    highest = max(ratios.values())
    return [radius for radius, ratio in ratios.items() if is_near(ratio, highest)]


def _goes_on(ratios: Mapping[float, float]) -> bool:
    """Whether a larger radius may fool more: nothing is fooled yet, or most are at the last radius, and not all."""
    highest = max(ratios.values())
    return highest == 0 or (highest < 1 and len(_near(ratios)) == 1 and max(ratios) in _near(ratios))
