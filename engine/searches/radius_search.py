"""Radius search ("best effort" in RoBIC, equation 1): the smallest radius at which a fixed-budget attack succeeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, ThreatModel, canonical_attack, run_attack
from ...adapters.catalogue.default_threat_model import default_epsilon
from ...adapters.catalogue.lookup import check_support, resolve_implementation, supports_per_image_radii
from ...adapters.catalogue.step_reach import with_reaching_step_size
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.models.images import check_images
from ...deprecation import takes_old_names
from ...errors import AttackFailed, InvalidInput, ModelFailed, Unsupported
from .best_examples import BestExamples
from .kinds import Grid, Search, Values, check_learns_nothing, combinations
from .single import round_to_8bit

UPPER = 16  # default largest radius of a search, in customary radii
ROUNDS = 8
MAX_ROUNDS = 24  # float32 images do not distinguish more halvings


class RadiusSearch(Search):
    """`best(A)`: finds for each image the smallest radius at which a fixed-budget attack succeeds."""

    kind = "best"
    searches_radius = finds_smallest = True
    runs = 8
    why_no_surrogate = "the smallest change that fools the surrogate need not fool the model"
    options_of_cells: ClassVar[Mapping[str, Any]] = {"reach": False}  # the step size is that of the parameters

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """Return the threat model with the largest radius of the search."""
        return replace(threat_model, epsilon=radius_grid(row, threat_model, components).upper)

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for minimum-norm and universal attacks, norms without radii, and unsupported settings."""
        _check(row, rules, components, [{**given, **values} for values in combinations(grid)], ROUNDS)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> AttackResult:
        """Run `search_radius`."""
        return search_radius(row, *nouns, **options)


class RadiusGrid(NamedTuple):
    """Radii of a search, equally spaced, ascending from at(1) to at(count).

    Args:
        upper: largest radius, equal to at(count).
        count: number of radii.
        whole: whether radii are rounded up to whole numbers, for l0.
    """

    upper: float
    count: int
    whole: bool

    def at(self, node: int) -> float:
        """Return the radius with index `node`, from 1 to `count`."""
        if self.whole:
            return float(-(-node * int(self.upper) // self.count))
        return node * self.upper / self.count

    @property
    def halvings(self) -> int:
        """Number of halvings of the grid. An image is attacked at most `halvings` + 1 times."""
        return (self.count - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class RadiusSearchResult(AttackResult):
    """Result of `search_radius`: the nearest example of each image over the whole search, and the total cost.

    The inherited `budget` is the smallest radius at which the attack fooled each image.

    Args:
        runs: number of attack runs of each image, (N,) int64.
        chosen: for each image, the values from `grid` with which the image was fooled at `budget`. None without an
            example.
        upper: largest radius. The radii were k / 2**rounds times `upper`. For images that were not fooled at `upper`,
            the largest radius was then doubled repeatedly.
        rounds: number of halvings.
        searched: largest radius tried for each image, (N,) float64; inf for the largest change that [0, 1] allows.
    """

    runs: Tensor
    chosen: tuple[Mapping[str, Any] | None, ...]
    upper: float
    rounds: int
    searched: Tensor


@takes_old_names()
def search_radius(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
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
    eight_bit: bool = False,
    progress: Callable[[int], object] | None = None,
    reach: bool = True,
    **parameters: Any,
) -> RadiusSearchResult:
    """Search for the smallest radius at which a fixed-budget attack succeeds on each image.

    The search turns a fixed-budget attack into a minimum-norm attack. It makes one run at the largest radius and then
    bisects, with at most rounds + 1 runs per image. The radii are k / 2**rounds times the largest radius. If success is
    monotonic in the radius, the result is the smallest successful radius among these. Otherwise, the result is a radius
    at which the attack succeeds while it fails at the next smaller radius.

    Without an epsilon, the largest radius is doubled for images that are not fooled, up to the largest change that [0,
    1] allows. The bisection then runs between the last two radii.

    The images of a round run together if the library accepts a radius per image (`Implementation.per_image_radii`).
    Otherwise, images with equal radii run together. An implementation that gets one image at a time draws the same
    random numbers in every run of an image. A crashed run ends the search for its images, which keep their best
    examples so far; the queries of the crashed run are not counted.

    Every combination of a `grid` is searched. With later combinations, an image is attacked only below its best radius
    so far: first at the next smaller radius, then by bisection.

    Args:
        implementation: a fixed-budget implementation, or its name: "foolbox:pgd".
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, targeted, and the largest radius. Without epsilon, the first largest radius is 16 times the
            customary radius (`default_epsilon`): 64/255 in linf, a root mean square change of 32/255 in l2, 16 % of the
            components in l0.
        rounds: number of halvings, 1 to 24. In l0, radii are rounded up to whole numbers.
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed.
        first: index of the first image in the whole data set, or the index of each image, as in `run_attack`.
        logits: logits of the clean images. None to compute them.
        grid: the values to try of further parameters, by parameter.
        eight_bit: whether success and distance are measured on 8-bit examples, which are returned.
        progress: called with the increase in progress since the last call, as a number of images.
        reach: whether to use the step size "2.5 epsilon / steps" if the default steps of the library are together
            shorter than the largest radius. The step size then appears in the parameters of the result. A given
            `step_size` is not changed.
        **parameters: canonical parameters. `max_queries` applies to the whole search of an image. `step_size` may be
            relative to the radius: "2.5 epsilon / steps" or "2 epsilon", with any number.

    Returns:
        The result, as of a minimum-norm implementation with the name `best(foolbox:pgd)`: the queries and seconds of
        the whole search, the nearest example found in it, and `budget`, the smallest successful radius.

    Raises:
        Unsupported: for a minimum-norm or universal attack, a norm without radii, or unsupported settings.
        InvalidInput: if an argument has a wrong value.
        AttackFailed: if the run at the largest radius crashed on every image.
    """
    row = resolve_implementation(implementation)
    check_images(inputs)
    choices = combinations(grid or {})
    if reach and "step_size" not in (grid or {}):
        limit = radius_grid(row, threat_model, inputs[0].numel(), rounds).upper
        parameters = with_reaching_step_size(row, replace(threat_model, epsilon=limit), parameters)
    settings = [{**parameters, **choice} for choice in choices]
    nodes, scaled = _check(row, threat_model, inputs[0].numel(), settings, rounds)
    top = replace(threat_model, epsilon=nodes.upper)
    known: dict[str, Any] = {"targets": targets, "seed": seed, "first": first, "logits": logits}
    start = run_attack(row, classifier, inputs, labels, top, **known, **scaled[0])
    inputs = inputs.detach().float()
    places = first if isinstance(first, Tensor) else torch.arange(len(inputs), device="cpu") + first

    def attack(images: Tensor, radii: Tensor, number: int, spent: Tensor) -> AttackResult:
        options = {
            "targets": None if start.targets is None else start.targets[images],
            "seed": seed,
            "first": places[images.to(places.device)],
            "spent": spent,
            "logits": start.logits[images],
        }
        nouns = row, classifier, inputs[images], start.labels[images], threat_model
        return run_at(*nouns, radii, settings[number], **options)

    mixed = [supports_per_image_radii(row, threat_model.norm, values) for values in scaled]
    search = Bisection(start, attack, inputs, nodes, mixed=mixed, eight_bit=eight_bit, progress=progress)
    largest = largest_change(threat_model.norm, inputs[0].numel())
    wider = [] if threat_model.epsilon is not None else wider_radii(nodes, largest)
    for stage in (nodes, *wider):
        if stage is not nodes and not search.extend(stage):
            break
        for number, values in enumerate(settings):
            search.search_below(number, values.get("max_queries"))
    names = {"implementation": RadiusSearch(row.name).name, "threat_model": threat_model, "parameters": parameters}
    result = RadiusSearchResult(
        **{**vars(search.finish()), **names},
        runs=search.state.runs,
        chosen=tuple(None if number is None else choices[number] for number in search.choice),
        upper=nodes.upper,
        rounds=rounds,
        searched=search.searched.masked_fill(search.searched >= largest, torch.inf),
    )
    return round_to_8bit(result, classifier, inputs) if eight_bit else result


def _check(
    row: Implementation, rules: ThreatModel, components: int, settings: Sequence[Values], rounds: int
) -> tuple[RadiusGrid, list[dict[str, Any]]]:
    """Check the settings of a search.

    Returns:
        The radii for images with `components` components; and each set of parameters as it is used at the largest
        radius.
    """
    check_learns_nothing(row)
    radii = radius_grid(row, rules, components, rounds)
    top = replace(rules, epsilon=radii.upper)
    return radii, [check_support(row, top, resolve_step_size(values, radii.upper)) for values in settings]


def radius_grid(row: Implementation, threat_model: ThreatModel, components: int, rounds: int = ROUNDS) -> RadiusGrid:
    """Return the radii of a search. Without epsilon, the largest radius is 16 times the customary radius.

    Args:
        row: the implementation.
        threat_model: norm, and the largest radius.
        components: C x H x W of an image.
        rounds: number of halvings.

    Raises:
        Unsupported: for a minimum-norm or universal attack, or a norm without radii.
        InvalidInput: if the number of rounds is out of range.
    """
    if canonical_attack(row).kind != "fixed-budget":
        raise Unsupported(f"expected a fixed-budget attack, but {row.name} is a minimum-norm attack")
    if row.universal:
        raise Unsupported(f"{row.name} makes one perturbation for all images, so it has no radius for each image")
    upper = threat_model.epsilon
    if upper is None:
        customary = default_epsilon(threat_model.norm, components)
        if customary is None:
            raise Unsupported(f"expected a norm with radii to search, got {threat_model.norm}")
        upper = min(UPPER * customary, largest_change(threat_model.norm, components))
    if not isinstance(rounds, int) or not 1 <= rounds <= MAX_ROUNDS:
        raise InvalidInput(f"expected rounds as a whole number from 1 to {MAX_ROUNDS}, got {rounds!r}")
    if threat_model.norm == "l0":
        return RadiusGrid(float(int(upper)), min(2**rounds, int(upper)), whole=True)
    return RadiusGrid(upper, 2**rounds, whole=False)


def largest_change(norm: str, components: int) -> float:
    """Return the largest possible norm of a change between images in [0, 1] with `components` components."""
    return {"linf": 1.0, "l2": components**0.5}.get(norm, float(components))


def wider_radii(radii: RadiusGrid, largest: float) -> list[RadiusGrid]:
    """Return grids whose largest radius is twice, four times, ... that of `radii`, up to `largest`."""
    wider, upper = [], radii.upper
    while upper < largest:
        upper = min(2 * upper, largest)
        wider.append(radii._replace(upper=upper))
    return wider


def run_at(
    row: Implementation,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    radii: Tensor | None,
    settings: Mapping[str, Any],
    **options: Any,
) -> AttackResult:
    """Run an attack with a radius for each image.

    Args:
        row: the implementation. If the radii differ, it needs `supports_per_image_radii`.
        classifier: the model under attack.
        inputs: clean images, shape (n, C, H, W).
        labels: ground truth, shape (n,).
        threat_model: norm and targeted.
        radii: float64, shape (n,). None for a minimum-norm attack.
        settings: canonical parameters. The step size may be relative to the radius.
        **options: options of `run_attack`, and canonical parameters that override those of `settings`.
    """
    if radii is None:
        resolved = resolve_step_size(settings, None)
    else:
        largest = float(radii.max())
        differ = bool((radii != largest).any())
        resolved = resolve_step_size(settings, radii if differ else largest) | ({"radii": radii} if differ else {})
        threat_model = replace(threat_model, epsilon=largest)
    return run_attack(row, classifier, inputs, labels, threat_model, **{**resolved, **options})


def alike(values: Tensor, *, mixed: bool) -> list[Tensor]:
    """Group images that can run together.

    Returns:
        Indices of the images of each group: all images if radii may be mixed, otherwise a group for each radius.
    """
    if mixed:
        return [torch.arange(len(values), device=values.device)]
    return [(values == value).nonzero()[:, 0] for value in values.unique()]


# One run: its images, their radii, the number of the settings, and the queries used by each image.
Attack = Callable[[Tensor, Tensor, int, Tensor], AttackResult]


class Bisection:
    """Bisection over a grid of radii, which finds the smallest radius at which each image is fooled.

    All images are searched in parallel. A node is the index of a radius in the grid. A round of the bisection is one
    run of the attack if the library accepts a radius for each image (`mixed`, for each set of settings); otherwise a
    round is one run for each node. `start` is the result of the first settings at the largest radius, on all images.

    Attributes:
        state: best examples and costs so far.
        choice: for each image, the index of the settings that reached the smallest node; None without an example.
        searched: largest radius tried for each image; with all settings if the image was not fooled.
    """

    def __init__(
        self,
        start: AttackResult,
        attack: Attack,
        inputs: Tensor,
        radii: RadiusGrid,
        *,
        mixed: Sequence[bool],
        eight_bit: bool,
        progress: Callable[[int], object] | None,
    ):
        self.state = BestExamples(start, inputs, eight_bit=eight_bit)
        self._attack, self._radii, self._mixed = attack, radii, mixed
        self._node = torch.full_like(start.labels, radii.count + 1)  # one above the grid: no success yet
        self.choice: list[int | None] = [None] * len(start.labels)
        self._closed = ~start.attacked
        self._crashed = torch.zeros_like(self._closed)
        self._reached = torch.full_like(self.state.distance, torch.inf)
        self.searched = torch.zeros_like(self._reached).masked_fill(start.attacked, radii.upper)
        self._failed_at = 0  # the node that images were run at before, without success; above 0 after `extend`
        self._progress, self._planned = progress or (lambda _: None), (radii.halvings + 1) * len(mixed)
        self._done, self._reported = 0, 0
        everything = torch.arange(len(start.labels), device=start.labels.device)
        self._learn(everything, self._node - 1, 0, self.state.take(everything, start, is_start=True))
        self._count(start.attacked.nonzero()[:, 0])

    def extend(self, radii: RadiusGrid) -> bool:
        """Continue at larger radii with the images that are not fooled. Return False if there are no such images."""
        left = self.state.best.attacked & self._reached.isinf() & ~self._crashed
        self._closed = ~left
        self._failed_at = int(radii.count * self._radii.upper / radii.upper)
        self._radii = radii
        self._node[left] = radii.count + 1
        return bool(left.any())

    def search_below(self, number: int, max_queries: int | None) -> None:
        """Search with one set of settings (`number`) below the best node of each image.

        The first set of settings has already run at the largest radius. Other sets (and the first set after `extend`)
        first run one node below the best node, and are bisected only if this run succeeds.
        """
        low, high = torch.full_like(self._node, self._failed_at), self._node.clone()
        started = number == 0 and not self._failed_at
        aim = high // 2 if started else high - 1
        done = self._closed | (self._node > self._radii.count) if started else self._closed.clone()
        while True:
            done |= self._closed | (high - low <= 1)
            if max_queries is not None:
                done |= self.state.queries_used >= max_queries
            if done.all():
                return
            going = (~done).nonzero()[:, 0]
            for some in alike(aim[going], mixed=self._mixed[number]):
                rows, nodes = going[some], aim[going[some]]
                self._count(rows)
                hit = self._attempt(rows, nodes, number)
                high[rows] = high[rows].where(~hit, nodes)
                low[rows] = low[rows].where(hit, nodes)
            aim = (low + high) // 2

    def finish(self) -> AttackResult:
        """Return the best result, with the smallest successful radius of each image.

        Progress is also reported for runs that were planned but not needed.
        """
        best = self.state.finish()
        self._progress(int(best.attacked.sum()) - self._reported)
        return replace(best, budget=self._reached.where(best.attacked, 0.0))

    def _attempt(self, rows: Tensor, nodes: Tensor, number: int) -> Tensor:
        """Attack images at the radii of their nodes. Return whether each image was fooled, shape (rows,) bool."""
        missed = torch.zeros_like(self._closed[rows])
        radii = self._radii_at(nodes)
        try:
            result = self._attack(rows, radii, number, self.state.queries_used[rows])
        except Unsupported:  # the library does not support so small a radius: not fooled
            return missed
        except (AttackFailed, ModelFailed) as error:
            nodes_tried = alike(nodes, mixed=False)
            if len(nodes_tried) > 1:  # one radius may be the cause: try each separately
                for some in nodes_tried:
                    missed[some] = self._attempt(rows[some], nodes[some], number)
                return missed
            self._closed[rows] = self._crashed[rows] = True
            self.state.crash(rows, error)
            return missed
        self.searched[rows] = self.searched[rows].maximum(radii.to(self.searched))
        hit = self.state.take(rows, result)
        self._learn(rows, nodes, number, hit)
        return hit

    def _learn(self, rows: Tensor, nodes: Tensor, number: int, hit: Tensor) -> None:
        """Lower the best node of images that were fooled below it."""
        below = hit & (nodes < self._node[rows])
        lower = rows[below]
        self._node[lower] = nodes[below]
        self._reached[lower] = self._radii_at(nodes[below]).to(self._reached)
        for image in lower.tolist():
            self.choice[image] = number

    def _radii_at(self, nodes: Tensor) -> Tensor:
        return torch.tensor([self._radii.at(node) for node in nodes.tolist()], dtype=torch.double, device="cpu")

    def _count(self, rows: Tensor) -> None:
        """Count one more run for each of these images, and report the progress as a number of whole images."""
        self.state.runs[rows] += 1
        self._done += len(rows)
        new = min(self._done // self._planned, int(self.state.best.attacked.sum())) - self._reported
        if new > 0:
            self._progress(new)
            self._reported += new
