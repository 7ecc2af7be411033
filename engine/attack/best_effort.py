"""Best effort (RoBIC, eq. 1): per image, the smallest radius at which a fixed-budget attack succeeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...adapters import (
    AttackResult,
    Classifier,
    Implementation,
    ThreatModel,
    attack_of,
    run_attack,
)
from ...adapters.catalogue.customary import default_epsilon
from ...adapters.catalogue.lookup import check_support, row_of, takes_radii
from ...adapters.catalogue.step_size import resolve_step
from ...adapters.criterion import fooled
from ...adapters.models.images import check_images
from ...adapters.result import allowed_radius
from ...adapters.running.draws import drawing, judged
from ...adapters.running.judge import distances_of, norm_of, quantise
from ...errors import InvalidInput, Unsupported
from ..search import search_of
from .bisection import Bisection, Radii
from .reach import reaching

UPPER = 16  # largest radius of a search that is given none, in customary radii
ROUNDS = 8
MAX_ROUNDS = 24  # float32 images do not tell more halvings apart
Result = TypeVar("Result", bound=AttackResult)


@dataclass(frozen=True, kw_only=True)
class SearchResult(AttackResult):
    """What `best_effort` found: the nearest example of each image over the whole search, and all that it cost.

    `runs` is how often each image was attacked, (N,) int64; `chosen` the values of the grid that gave each image its
    `budget`, None where nothing did. The radii were k / 2**rounds of `upper`, and of its doubles for the images that
    nothing fooled there; `searched` is the largest radius that each image was run at, (N,) float64, inf for the largest
    change that [0, 1] allows.
    """

    runs: Tensor
    chosen: tuple[Mapping[str, Any] | None, ...]
    upper: float
    rounds: int
    searched: Tensor


def best_effort(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    implementation: Any,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    rounds: int = ROUNDS,
    targets: Tensor | None = None,
    seed: int = 0,
    first: int | Tensor = 0,
    logits: Tensor | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    pixels: bool = False,
    progress: Callable[[int], object] | None = None,
    reach: bool = True,
    **parameters: Any,
) -> SearchResult:
    """Make a minimum-norm attack of a fixed-budget one: search each image for its smallest successful radius.

    One run at the largest radius, then bisection: at most rounds + 1 runs for an image. Without an epsilon, images that
    nothing fools there are run at twice the radius, and again, up to the largest change that [0, 1] allows; an image
    that is fooled there is bisected between the two. The images of a round run together where the library takes a
    radius for each of them (`Implementation.per_image_radii`), else those on the same radius do. For an attack that
    succeeds at every radius above its first success this is the minimum over the whole grid; for another it is a radius
    at which it succeeds although it fails one step below.

    Every combination of a `grid` is searched; from the second on an image is tried below its best radius so far only:
    one step below first, then by bisection. A row that gets one image at a time draws the same random numbers in every
    run of an image. A run that crashes ends the search of its images, whose best so far stands; its queries are lost.

    Args:
        implementation: a fixed-budget row, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, targeted, and the largest radius; without epsilon the first is 16 times the customary one
            (`default_epsilon`): linf 64/255, l2 a root mean square change of 32/255, l0 16 % of the components.
        rounds: halvings, 1 to 24: the radii are k / 2**rounds of the largest (l0: rounded up to whole numbers).
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed.
        first: place of the first image in the whole data set, or of each, as in `run_attack`.
        logits: of the clean images, where they are known, as in `run_attack`.
        grid: further parameters, and the values to try of each.
        pixels: success and distance count on the examples rounded to 8 bits, and those are returned.
        progress: called with the number of images that the work since the last call amounts to.
        reach: where the library's step size, times the steps, is shorter than the largest radius and none is given,
            it is "2.5 epsilon / steps"; the result's parameters say so. False: the library's, whatever it reaches.
        **parameters: canonical parameters; `max_queries` holds for the whole search of an image. `step_size` may be
            relative to the radius: "2.5 epsilon / steps" or "2 epsilon", with any number.

    Returns:
        The result of a minimum-norm implementation called `best(foolbox:pgd)`: queries and seconds of the whole search,
        the nearest example seen in it, and `budget`, the smallest successful radius.

    Raises:
        Unsupported: for a minimum-norm or universal row, a threat model without a ball, or what the row cannot do.
        InvalidInput: if an argument has a wrong value.
        AttackFailed: if the run at the largest radius crashed on every image.
    """
    row = row_of(implementation)
    check_images(inputs)
    choices = combinations(grid or {})
    if reach and "step_size" not in (grid or {}):
        limit = radii_of(row, threat_model, inputs[0].numel(), rounds).upper
        parameters = reaching(row, replace(threat_model, epsilon=limit), parameters)
    settings = [{**parameters, **choice} for choice in choices]
    nodes, scaled = check_search(row, threat_model, inputs[0].numel(), settings, rounds)
    top = replace(threat_model, epsilon=nodes.upper)
    known: dict[str, Any] = {"targets": targets, "seed": seed, "first": first, "logits": logits}
    start = run_attack(row, classifier, inputs, labels, top, **known, **scaled[0])
    inputs, places = (
        inputs.detach().float(),
        first if isinstance(first, Tensor) else torch.arange(len(inputs), device="cpu") + first,
    )

    def attack(rows: Tensor, radii: Tensor, number: int, spent: Tensor) -> AttackResult:
        ball = replace(threat_model, epsilon=float(radii.max()))
        aims = None if start.targets is None else start.targets[rows]
        options: dict[str, Any] = {
            "targets": aims,
            "seed": seed,
            "first": places[rows.to(places.device)],
            "spent": spent,
        }
        if bool((radii == ball.epsilon).all()):
            options |= resolve_step(settings[number], ball.epsilon)
        else:
            options |= {"radii": radii, **resolve_step(settings[number], radii)}
        return run_attack(row, classifier, inputs[rows], start.labels[rows], ball, logits=start.logits[rows], **options)

    mixed = [takes_radii(row, threat_model.norm, values) for values in scaled]
    search = Bisection(start, attack, inputs, nodes, mixed=mixed, pixels=pixels, progress=progress)
    largest = largest_change(threat_model.norm, inputs[0].numel())
    wider = [] if threat_model.epsilon is not None else wider_radii(nodes, largest)
    for stage in (nodes, *wider):
        if stage is not nodes and not search.extend(stage):
            break
        for number, values in enumerate(settings):
            search.descend(number, values.get("max_queries"))
    names = {
        "implementation": search_of("best", [row.name]).name,
        "threat_model": threat_model,
        "parameters": parameters,
    }
    result = SearchResult(
        **{**vars(search.finish()), **names},
        runs=search.runs,
        chosen=tuple(None if number is None else choices[number] for number in search.choice),
        upper=nodes.upper,
        rounds=rounds,
        searched=search.searched.masked_fill(search.searched >= largest, torch.inf),
    )
    return on_pixels(result, classifier, inputs) if pixels else result


def check_search(
    row: Implementation,
    threat_model: ThreatModel,
    components: int,
    settings: Sequence[Mapping[str, Any]],
    rounds: int = ROUNDS,
) -> tuple[Radii, list[dict[str, Any]]]:
    """The radii of a search over images of `components` = C x H x W, and its settings at the largest of them.

    Raises:
        Unsupported: for a minimum-norm or universal row, a threat model without a ball, or what the row cannot do.
        UnknownName: if a parameter is not in the vocabulary.
        InvalidInput: if a parameter or the number of rounds has a wrong value.
    """
    check_learns_nothing(row)
    radii = radii_of(row, threat_model, components, rounds)
    top = replace(threat_model, epsilon=radii.upper)
    return radii, [check_support(row, top, resolve_step(values, radii.upper)) for values in settings]


def check_learns_nothing(row: Implementation, *, apart: bool = False) -> None:
    """Raise Unsupported for an attack that learns before any image is attacked, at one radius.

    Args:
        row: the attack.
        apart: it would learn from other images than it attacks.
    """
    if row.fit and (apart or row.data_free or row.learned):
        raise Unsupported(f"{row.name} learns at one radius, before any image is attacked: run it at a radius")


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; one empty combination without a grid. InvalidInput for one without values."""
    for name, values in grid.items():
        if isinstance(values, str) or not len(values):
            raise InvalidInput(f"expected a list of values of {name} in the grid, got {values!r}")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def radii_of(row: Implementation, threat_model: ThreatModel, components: int, rounds: int) -> Radii:
    """The grid of a search over images of `components` = C x H x W.

    Raises:
        Unsupported: for a minimum-norm or universal row, or a threat model without a ball.
        InvalidInput: if the number of rounds is out of range.
    """
    if attack_of(row).kind != "fixed-budget":
        raise Unsupported(f"{row.name} looks for the smallest change by itself: expected a fixed-budget attack")
    if row.universal:
        raise Unsupported(f"{row.name} makes one perturbation for all images: no image has a radius of its own")
    upper = threat_model.epsilon
    if upper is None:
        customary = default_epsilon(threat_model.norm, components)
        if customary is None:
            raise Unsupported(f"expected a norm with a ball to search the radius of, got {threat_model.norm}")
        upper = min(UPPER * customary, largest_change(threat_model.norm, components))
    if not isinstance(rounds, int) or not 1 <= rounds <= MAX_ROUNDS:
        raise InvalidInput(f"expected rounds as a whole number from 1 to {MAX_ROUNDS}, got {rounds!r}")
    if threat_model.norm == "l0":
        return Radii(float(int(upper)), min(2**rounds, int(upper)), whole=True)
    return Radii(upper, 2**rounds, whole=False)


def largest_change(norm: str, components: int) -> float:
    """The largest change in a norm that images in [0, 1] of so many components can have."""
    return {"linf": 1.0, "l2": components**0.5}.get(norm, float(components))


def wider_radii(radii: Radii, largest: float) -> list[Radii]:
    """The grids of twice the radius, and so on, up to the largest change there can be."""
    wider, upper = [], radii.upper
    while upper < largest:
        upper = min(2 * upper, largest)
        wider.append(radii._replace(upper=upper))
    return wider


def _is_inside(inputs: Tensor, images: Tensor, threat_model: ThreatModel) -> Tensor:
    return norm_of(images.double() - inputs.double(), threat_model.norm) <= allowed_radius(threat_model)


def on_pixels(result: Result, classifier: Classifier, inputs: Tensor) -> Result:
    """The same result on images of 8 bits (RoBIC, 3): the examples rounded, success and distances those of the rounded.

    Distances are between the rounded example and the rounded clean image. An example that rounding moves out of the
    ball is rounded towards the clean image instead, and is no success where it is outside even so. One that fails
    before rounding is no success after it, and one whose logits are not finite after it is a violation.

    Args:
        result: what an attack found.
        classifier: the model that it attacked.
        inputs: the clean images, shape (N, C, H, W).
    """
    clean, adv_inputs = quantise(inputs.float()), quantise(result.adv_inputs)
    outside = ~_is_inside(clean, adv_inputs, result.threat_model)
    if outside.any():
        inwards = (clean * 255 + ((result.adv_inputs - clean) * 255 * (1 + 1e-6)).trunc()).round() / 255
        adv_inputs = inwards.where(outside.view(-1, 1, 1, 1), adv_inputs)
    with drawing(classifier, draws=result.draws or None):
        adv_logits, share = judged(classifier, adv_inputs, result.labels, result.targets)
    success = result.success_8bit.where(~outside, result.success) & fooled(adv_logits, result.labels, result.targets)
    inside = _is_inside(clean, adv_inputs, result.threat_model)
    success &= inside
    distances, budget = distances_of(clean, adv_inputs), result.budget
    if budget is not None:
        budget = budget.where(success | ~result.attacked, torch.inf)
    finite = torch.isfinite(adv_logits).all(1).tolist()
    violations = tuple(
        kinds if fine or not attacked or "nan-logits" in kinds else (*kinds, "nan-logits")
        for kinds, fine, attacked in zip(result.violations, finite, result.attacked.tolist(), strict=True)
    )
    changed = {"adv_inputs": adv_inputs, "adv_logits": adv_logits, "distances": distances, "budget": budget}
    changed |= {} if share is None else {"draws_fooled": share.where(inside, 0.0)}
    return replace(result, **changed, violations=violations, success=success, success_8bit=success)
