"""Best effort of several attacks: what one finds bounds the search of the others, at one price for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...adapters import (
    AttackResult,
    Classifier,
    Implementation,
    ThreatModel,
    attack_of,
    find_implementation,
    run_attack,
)
from ...adapters.catalogue.lookup import accepts, check_support, find_library, load_class, takes_radii
from ...adapters.catalogue.step_size import resolve_step
from ...adapters.models.images import check_images
from ...adapters.parameters import SUPPLIED
from ...adapters.paths import is_file_name
from ...adapters.running.call import Returned
from ...adapters.running.draws import clean_logits
from ...adapters.running.judge import distances_of
from ...adapters.threat_model import Norm
from ...errors import AttackFailed, InvalidInput, ModelFailed, Unsupported
from .best_examples import LINE_QUERIES, BestExamples, on_the_line
from .kinds import AUTO, Grid, Search, Values, combinations, joint_row
from .radius_search import RadiusSearch, alike, largest_change, radii_of, run_at
from .single import on_pixels
from .tuning import (
    Turn,
    begins_near,
    early_passes,
    is_one_step,
    last_passes,
    least_passes,
    opening_passes,
    rounded_radius,
    tuned,
)

MAX_QUERIES = 2000  # for each image: AttackBench's limit
_VERSION = "5"  # part of the key of a cell, raised whenever the same attacks would search otherwise
_NEAREST_CLASS = "adv-lib:deepfool"
# The attacks of best(auto), chosen on the digits models: tools/best_effort/RESULTS.md.
_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "linf": ("adv-lib:fab-t", "adv-lib:fmn@repaired", "adv-lib:fab", "adv-lib:apgd-dlr"),
    "l2": (
        "adv-lib:ddn@repaired",
        "adv-lib:fmn@repaired",
        _NEAREST_CLASS,
        "adv-lib:pdgd",
        "adv-lib:alma@repaired",
    ),
}
_SHARE = 48  # passes of a turn in the first round; each further round has twice as many
_SLACK = 8  # passes that are too few for another turn
_BELOW, _HALF, _LEAST_STEP = 1 / 32, 1 / 2, 1 / 1024  # how far below the best radius the next run is, as a share of it
_TRIES, _ROUGH_TRIES = 2, 6  # runs that a fixed-budget attack's turn has room for: near the best radius, far from it
_FEWEST = 8  # passes of such a run, and of a whole search


class Portfolio(Search):
    """`best(A,B,...)`: several attacks that look for the smallest change together; `best(auto)`: davylamp's choice."""

    kind = "best"
    searches_radius = finds_smallest = True
    stands_for_several = True
    runs = 8
    why_no_surrogate = RadiusSearch.why_no_surrogate

    def choose_members(self, norm: str, *, targeted: bool) -> "Portfolio":
        """Of `best(auto)` the attacks in the norm; DeepFool, which cannot be aimed at a class, in no targeted search.

        Raises:
            Unsupported: for a norm in which no attacks were compared.
        """
        return Portfolio(",".join(default_names(norm, targeted=targeted))) if self.inside == AUTO else self

    def find_row(self) -> Implementation:
        """The implementation that stands for all: it has the norms that all of them have.

        Raises:
            InvalidInput: if a name is missing, occurs twice, or is no `library:attack`.
            Unsupported: for a user's attack or one perturbation for all images, or if no norm is common.
            UnknownName: if there is no such attack.
        """
        for name in self.members:
            if ":" not in name or set(name) & set("()"):
                raise InvalidInput(f"expected best(...) of several attacks as LIBRARY:NAME each, got {name!r}")
            if is_file_name(name):
                raise Unsupported(_run_users_attack(name))
        if len(set(self.members)) < len(self.members):
            raise InvalidInput(f"expected different attacks in best(...), got {', '.join(self.members)}")
        rows = [find_implementation(name) for name in self.members]
        if universal := next((row.name for row in rows if row.universal), ""):
            raise Unsupported(f"{universal} makes one perturbation for all images: no image has a radius of its own")
        joint = joint_row(",".join(self.members), rows, "Best", "minimum-norm")
        if not joint.classes:
            raise Unsupported(f"{', '.join(self.members)} have no norm in common")
        return replace(joint, params={name: name for row in rows for name in row.params if name not in SUPPLIED})

    def version(self, row: Implementation) -> str:
        """Of the search, and of every library in it."""
        libraries = dict.fromkeys(each.library for each in self.rows(row))
        versions = [f"{name} {find_library(name).version}" for name in libraries]
        return f"search {_VERSION}, {', '.join(versions)}"

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """With what an image may cost, which is part of what the search is; the attacks' parameters it chooses."""
        del row, epsilon, defaults
        return {"max_queries": MAX_QUERIES, **given}

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Refuse fewer than two attacks, too few queries, and what one of the attacks cannot do."""
        settings = [{**given, **values} for values in combinations(grid)]
        _check(self.rows(row), rules, components, settings, given["max_queries"])

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> AttackResult:
        """As `best_of`."""
        del row
        return best_of(self.members, *nouns, **options)


def default_names(norm: str, *, targeted: bool = False) -> tuple[str, ...]:
    """The attacks of `best(auto)`; Unsupported for a norm in which none were compared.

    DeepFool, which cannot be aimed at a class, is left out of a targeted search.
    """
    if norm not in _DEFAULTS:
        raise Unsupported(f"best(auto) knows {' and '.join(_DEFAULTS)}, not {norm}: name the attacks, best(A,B)")
    return tuple(name for name in _DEFAULTS[norm] if not (targeted and name == _NEAREST_CLASS))


@dataclass(frozen=True, kw_only=True)
class PortfolioResult(AttackResult):
    """What `best_of` found: the nearest example of each image over all attacks, and all that it cost.

    `runs` is how often each image was attacked, (N,) int64; `winner` the place of the attack that found its example,
    (N,) int64, -1 where none did; `curves` have judged points only. `budget` is the distance; `searched` the largest
    radius that was looked at, (N,) float64, inf where an attack looked for the smallest change by itself.
    """

    runs: Tensor
    winner: Tensor
    searched: Tensor


def best_of(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    attacks: list[str] | tuple[str, ...],
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    max_queries: int = MAX_QUERIES,
    targets: Tensor | None = None,
    seed: int = 0,
    first: int | Tensor = 0,
    logits: Tensor | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    pixels: bool = False,
    progress: Callable[[int], object] | None = None,
    **parameters: Any,
) -> PortfolioResult:
    """Look for the smallest change of each image by several attacks that share what they find and what they may spend.

    The first attack opens with a few passes and gives each image its first radius. In l2 adv-lib's DeepFool, which goes
    to the nearest class where the others go to the likeliest, then has one step: classes + 1 passes, if that is an
    eighth of all at most, and no other turn (unless it is the first). PDGD and then ALMA, which come
    from far outside, have 200 and 300 passes at once, or what is left if it suffices (110 and 140). Then the attacks
    take turns, round after round, with 48 passes an image in the first round and twice as many in each further one,
    until what is kept for the end is left of `max_queries`: in linf and l2 up to 33 passes, a fifth of all, for a run
    of FMN (if it is among the attacks) that begins at the nearest example of each image, whoever found it; and six that
    bisect the line between each example and its image (not in l0). In linf every other turn of FMN begins there, too.
    On a model that draws random numbers, which an example may fool no more, none does; each pass of the six and of
    DeepFool's step is `eot` passes there.
    Whatever the model is asked about counts: the nearest point that fools it is judged like any example. A
    minimum-norm attack gets as many steps as fit its turn, and steps as long as the radius known so far suggests; a
    fixed-budget attack runs below that radius, farther below after a success, nearer after a failure, and where
    nothing has fooled the model yet, at ever larger radii. From turn to turn step sizes, learning rates and seeds
    vary (`tuning`). An attack that crashes on images takes no further turn on them; the others go on.

    Args:
        attacks: at least two rows, "adv-lib:fmn" and "foolbox:pgd"; the first one opens.
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, targeted, and perhaps a radius: success then means an example within it.
        max_queries: forward plus backward passes of each image over all attacks, at least 8.
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed.
        first: place of the first image in the whole data set, or of each, as in `run_attack`.
        logits: of the clean images, where they are known, as in `run_attack`.
        grid: further parameters, and the values of each: an attack takes another combination each turn.
        pixels: success and distance count on the examples rounded to 8 bits, and those are returned; the curves then
            have the distances at the end of each run only.
        progress: called with the number of images that the work since the last call amounts to.
        **parameters: canonical parameters, which go to every attack that has them and are not chosen any more.

    Returns:
        The result of a minimum-norm implementation called `best(adv-lib:fmn,foolbox:pgd)`.

    Raises:
        Unsupported: if an attack cannot do what is asked, is universal or a user's.
        InvalidInput: if an argument has a wrong value.
        AttackFailed, ModelFailed: if every run crashed.
    """
    search = Portfolio(",".join(attacks))
    row = search.find_row()
    rows = search.rows(row)
    check_images(inputs)
    components = inputs[0].numel()
    settings = [{**parameters, **choice} for choice in combinations(grid or {})]
    _check(rows, threat_model, components, settings, max_queries)
    for each in rows:
        load_class(each, threat_model.norm)
    with classifier.frozen():
        aims: dict[str, Any] = {"targets": targets, "logits": logits, "seed": seed}
        base = _untouched(row, classifier, inputs, labels, replace(threat_model, epsilon=None), **aims)
        widest = threat_model.epsilon or largest_change(threat_model.norm, components)
        places = first if isinstance(first, Tensor) else torch.arange(len(labels), device="cpu") + first
        limits = Limits(max_queries, _first_radius(rows, threat_model, components), widest, pixels)
        turns = Turns(rows, classifier, inputs.detach().float(), base, places, limits, settings)
        turns.take_all(progress)
    nearest = turns.state.finish_within(threat_model)
    curves = tuple(map(tuple, turns.state.curves))
    result = PortfolioResult(
        **{**vars(nearest), "parameters": {**parameters, "max_queries": max_queries}, "curves": curves},
        runs=turns.state.runs,
        winner=turns.state.winner,
        searched=turns.searched,
    )
    return on_pixels(result, classifier, inputs) if pixels else result


def _check(
    rows: Sequence[Implementation], rules: ThreatModel, components: int, settings: Sequence[Values], most: int
) -> None:
    """Refuse fewer than two attacks, fewer than 8 queries at most, and what one of the attacks cannot do."""
    names = ",".join(row.name for row in rows)
    if len(rows) < 2:
        raise InvalidInput(f"expected several attacks, got {names}: best({names}) searches with one")
    if not isinstance(most, int) or most < _FEWEST:
        raise InvalidInput(f"expected max_queries of best(...) as a whole number from {_FEWEST} on, got {most!r}")
    top = _first_radius(rows, rules, components)
    for each in rows:
        fixed = attack_of(each).kind == "fixed-budget"
        ball = replace(rules, epsilon=top if fixed else None)
        for values in settings:
            taken = {name: value for name, value in values.items() if accepts(each, name)}
            check_support(each, ball, resolve_step(taken, top if fixed else None))
            if lost := [name for name in values if not any(accepts(other, name) for other in rows)]:
                raise Unsupported(f"none of {names} has parameter {', '.join(lost)}")


def _run_users_attack(name: str) -> str:
    """How a user's attack can be run, which does not search together with others."""
    refused = f"{name}: expected attacks of libraries in best(A,B), got one of a file"
    row = find_implementation(name)
    if row.universal:
        return f"{refused}; it makes one perturbation for all images: run it without best(...)"
    if attack_of(row).kind == "minimum-norm":
        return f"{refused}; it looks for the smallest change by itself: run it without best(...)"
    return f"{refused}; search it alone: best({name})"


def _first_radius(rows: Sequence[Implementation], threat_model: ThreatModel, components: int) -> float | None:
    """Where a fixed-budget attack begins on an image that nothing has fooled; None if there is no such attack."""
    fixed = [row for row in rows if attack_of(row).kind == "fixed-budget"]
    return radii_of(fixed[0], threat_model, components, 1).upper if fixed else None


def _untouched(  # noqa: PLR0913 - what a result is made of
    row: Implementation,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    targets: Tensor | None,
    logits: Tensor | None,
    seed: int,
) -> AttackResult:
    """The result of nothing: no image is fooled and nothing was spent."""
    logits = clean_logits(classifier, inputs, labels, logits)
    labels = labels.to(inputs.device, torch.long)
    none, images = torch.zeros_like(labels), inputs.detach().float()
    return AttackResult(
        implementation=Portfolio(row.attack).name,
        threat_model=threat_model,
        parameters={},
        seed=seed,
        adv_inputs=images.clone(),
        logits=logits,
        adv_logits=logits.clone(),
        labels=labels,
        attacked=logits.argmax(1) == labels,
        success=none.bool(),
        success_8bit=none.bool(),
        distances=distances_of(images, images),
        forwards=none.clone(),
        backwards=none.clone(),
        seconds=torch.zeros(len(labels), dtype=torch.double, device="cpu"),
        violations=((),) * len(labels),
        targets=targets,
        knowledge=attack_of(row).knowledge,
        draws=classifier.draws if classifier.random else 0,
        eot=classifier.eot if classifier.random else 1,
        draws_fooled=torch.zeros_like(none, dtype=torch.double) if classifier.random else None,
    )


class Limits(NamedTuple):
    """What a search may do: passes of each image, the first and the widest radius of a fixed-budget run, 8 bits."""

    max_queries: int
    first_radius: float | None
    widest: float
    pixels: bool


class Turns:
    """A search by several attacks.

    Args:
        rows: the attacks; the first one opens.
        classifier: the model under attack.
        inputs: clean images in [0, 1], float32, shape (N, C, H, W).
        base: the result in which nothing has been attacked yet; it is kept up to date in place.
        places: of the images in the data set, shape (N,): what their random numbers follow from.
        limits: what the search may do.
        settings: parameters that were given; an attack takes the next of several each turn.
    """

    def __init__(
        self,
        rows: Sequence[Implementation],
        classifier: Classifier,
        inputs: Tensor,
        base: AttackResult,
        places: Tensor,
        limits: Limits,
        settings: Sequence[Mapping[str, Any]],
    ):
        self.state = BestExamples(base, inputs, pixels=limits.pixels)
        self._rows, self._classifier, self._inputs, self._places = rows, classifier, inputs, places
        self._limits, self._settings = limits, settings
        self._progress: Callable[[int], object] | None = None
        self._images = base.attacked.nonzero()[:, 0]
        shape = len(rows), len(base.labels)
        self._number = torch.zeros(shape, dtype=torch.long, device=inputs.device)  # turns of each attack on each image
        self._open = torch.ones(shape, dtype=torch.bool, device=inputs.device)
        # Of fixed-budget attacks: how far below the best radius to go next (0: no turn yet), where nothing was fooled.
        self._step = torch.zeros(shape, dtype=torch.double, device=inputs.device)
        self._upper = torch.full(shape, limits.first_radius or limits.widest, dtype=torch.double, device=inputs.device)
        self.searched = torch.zeros_like(self.state.distance)
        self._error: Exception | None = None
        self._completed, self._reported, self._end = False, 0, limits.max_queries

    def take_all(self, progress: Callable[[int], object] | None = None) -> None:
        """All turns, until every image has spent its passes or no attack can use what is left.

        Args:
            progress: called with the number of images that the work since the last call amounts to.

        Raises:
            AttackFailed, ModelFailed: if no run of any attack was completed.
        """
        self._progress = progress
        self._end = self._limits.max_queries - self._line_passes - self._last_passes
        once, share = [bool(place) and is_one_step(row, self._norm) for place, row in enumerate(self._rows)], _SHARE
        least = [
            least_passes(row, self._classes, one_step=step, cost=self._cost)
            for row, step in zip(self._rows, once, strict=True)
        ]
        order = [*range(1, len(self._rows)), 0]
        self._take_the_first(order, least, once)
        order = [place for place in order if not once[place]]
        while True:
            spent = self.state.queries_used.clone()
            for place in order:
                self._take(place, share, slack=share // 2, least=least[place])
            if torch.equal(spent, self.state.queries_used):
                break
            share *= 2
        self._go_on_from_the_nearest()
        self._walk_the_line()
        if self._error is not None and not self._completed:
            raise self._error
        if self._progress is not None:
            self._progress(len(self._images) - self._reported)

    def _take_the_first(self, order: Sequence[int], least: Sequence[int], once: Sequence[bool]) -> None:
        """The opening, and right after it the turns of those attacks that have their passes at once."""
        most = self._limits.max_queries
        early = [
            early_passes(row, self._classes, most, one_step=step, cost=self._cost)
            for row, step in zip(self._rows, once, strict=True)
        ]
        opening = opening_passes(self._rows[0], before_step=any(early[place] for place in order if once[place]))
        self._take(0, opening, slack=_SLACK, least=_FEWEST)
        for place in order:
            if early[place]:
                self._take(place, early[place], slack=_SLACK, least=least[place])

    @property
    def _classes(self) -> int:
        return self.state.best.logits.shape[1]

    @property
    def _cost(self) -> int:
        """Passes that an answer costs: of a random model one for each draw that the attacks see the mean of."""
        return self._classifier.eot if self._classifier.random else 1

    @property
    def _norm(self) -> Norm:
        return self.state.best.threat_model.norm

    @property
    def _last(self) -> int | None:
        """The place of the attack that goes on from the nearest examples at the end.

        An example of a model that draws random numbers may fool it no more: there is none then.
        """
        able = [place for place, row in enumerate(self._rows) if row.begins_at]
        return able[0] if able and not self._classifier.random else None

    @property
    def _last_passes(self) -> int:
        """Passes that are kept for that."""
        return 0 if self._last is None else last_passes(self._limits.max_queries, self._norm)

    def _go_on_from_the_nearest(self) -> None:
        """Spend the passes that are kept for it on one run from the nearest example of each image."""
        self._end += self._last_passes
        if self._last is not None and self._last_passes:
            self._take(self._last, self._limits.max_queries, slack=0, least=_FEWEST, begun=True)

    @property
    def _line_passes(self) -> int:
        """Passes that are kept for the line at the end: where fewer changed components are not what counts."""
        passes = LINE_QUERIES * self._cost
        return passes if 4 * passes <= self._limits.max_queries and self._norm in ("linf", "l2", "l1") else 0

    def _walk_the_line(self) -> None:
        """Spend the last passes on the line between each example and its clean image."""
        state = self.state
        rows = self._images[state.distance[self._images].isfinite()]
        if not self._line_passes or not len(rows):
            return
        line, trace = on_the_line(state.best.adv_inputs[rows], LINE_QUERIES), state.trace(rows)
        options = {"seed": state.best.seed, "batch_size": len(rows), "trace": trace}
        result = run_attack(line, *self._nouns_of(rows), **self._options_of(rows), **options)
        state.take_traced(rows, result, state.winner[rows], trace, torch.zeros_like(rows), self._classifier)

    def _take(self, place: int, share: int, *, slack: int, least: int, begun: bool = False) -> None:
        """One turn of an attack on every image that has passes for it; less than `slack` is not left over.

        With `begun` it begins at the nearest example, where there is one, whatever the number of its turn.
        """
        rows = self._images
        left = self._end - self.state.queries_used[rows]
        passes = left.where(left - share < slack, share)
        able = (passes >= least) & self._open[place, rows]
        rows, passes = rows[able], passes[able]
        if attack_of(self._rows[place]).kind == "fixed-budget":
            self._search_below(place, rows, passes)
        else:
            self.searched[rows] = torch.inf
            near = self.state.best.success[rows] & (begun | self._near(place, rows))
            for some in (near.nonzero()[:, 0], (~near).nonzero()[:, 0]):
                self._take_alike(place, rows[some], passes[some], begun=bool(near[some].any()))
        self._number[place, rows] += 1

    def _near(self, place: int, rows: Tensor) -> Tensor:
        """Which images' turn of an attack begins at the nearest example, if there is one, shape (rows,) bool."""
        able = bool(self._rows[place].begins_at) and not self._classifier.random
        numbers = self._number[place, rows].tolist()
        return torch.tensor([able and begins_near(number, self._norm) for number in numbers], device=rows.device).bool()

    def _take_alike(self, place: int, rows: Tensor, passes: Tensor, *, begun: bool) -> None:
        """The runs of one turn of a minimum-norm attack, which begins at the examples of all images or of none."""
        for settings, number, some in self._groups(place, rows, passes, begun=begun):
            images = rows[some]
            examples = self.state.best.adv_inputs[images] if begun else None
            self._run(place, images, passes[some], settings, number, examples=examples)

    def _search_below(self, place: int, rows: Tensor, passes: Tensor) -> None:
        """Runs of a fixed-budget attack below the best radius of each image, as many as fit the turn."""
        end = self.state.queries_used[rows] + passes
        known = self.state.distance[rows].isfinite() & (self._step[place, rows] == 0)
        self._step[place, rows] = self._step[place, rows].where(~known, _BELOW).clamp(min=_BELOW / 8)
        rough = (self._step[place, rows] >= _HALF / 2) | self.state.distance[rows].isinf()
        one_run = torch.where(rough, passes // _ROUGH_TRIES, passes // _TRIES).clamp(min=_FEWEST)
        attempt = 0
        while True:
            radii = self._radii(place, rows)
            going = (end - self.state.queries_used[rows] >= one_run) & (radii > 0)
            rows, end, one_run, radii = rows[going], end[going], one_run[going], radii[going]
            if not len(rows):
                return
            for settings, number, some in self._groups(place, rows, one_run):
                images, left = rows[some], (end - self.state.queries_used[rows])[some]
                mixed = takes_radii(self._rows[place], self._norm, settings)
                for one in alike(radii[some], mixed=mixed):
                    tried = radii[some][one]
                    self._run(place, images[one], left[one], settings, number + 101 * attempt, radii=tried)
            attempt += 1

    def _radii(self, place: int, rows: Tensor) -> Tensor:
        """The radius of each image's next run, float64; 0 where there is none to try any more."""
        best, step, upper = self.state.distance[rows], self._step[place, rows], self._upper[place, rows]
        below = (best * (1 - step)).clamp(max=self._limits.widest)
        if self._norm == "l0":
            below = torch.minimum(below.floor(), best - 1)
        below = below.where(step >= _LEAST_STEP, 0.0)
        return below.where(best.isfinite(), upper.where(upper <= self._limits.widest, 0.0))

    def _learn(self, place: int, rows: Tensor, radii: Tensor, fresh: Tensor) -> None:
        """Where each image is tried next, after runs at these radii; `fresh`: nothing had fooled the model before."""
        hit = self.state.distance[rows] <= radii * (1 + 1e-4) + 1e-6
        step = self._step[place, rows]
        step = torch.where(hit, (2 * step).clamp(max=_HALF), step / 2)
        self._step[place, rows] = step.where(~(fresh & hit), _HALF)
        upper, widest = self._upper[place, rows], self._limits.widest
        wider = (2 * upper).clamp(max=widest).where(upper < widest, torch.inf)
        self._upper[place, rows] = upper.where(hit | ~fresh, wider)
        self.searched[rows] = self.searched[rows].maximum(radii)

    def _groups(
        self, place: int, rows: Tensor, passes: Tensor, *, begun: bool = False
    ) -> list[tuple[dict[str, Any], int, Tensor]]:
        """The images that share their settings: settings, number of the turn, indices into `rows`."""
        groups: dict[Any, tuple[dict[str, Any], int, list[int]]] = {}
        components = self._inputs[0].numel()
        for i, (image, allowed) in enumerate(zip(rows.tolist(), passes.tolist(), strict=True)):
            number, radius = int(self._number[place, image]), rounded_radius(float(self.state.distance[image]))
            given = self._settings[number % len(self._settings)]
            settings = tuned(self._rows[place], given, Turn(number, allowed, radius, self._norm, components, begun))
            groups.setdefault((number, *settings.items()), (settings, number, []))[2].append(i)
        return [(settings, number, torch.tensor(some)) for settings, number, some in groups.values()]

    def _run(
        self,
        place: int,
        rows: Tensor,
        passes: Tensor,
        settings: Mapping[str, Any],
        number: int,
        radii: Tensor | None = None,
        examples: Tensor | None = None,
    ) -> None:
        """One run of an attack: of a minimum-norm one (from `examples`), or (with `radii`) of a fixed-budget one."""
        row, state, most = self._rows[place], self.state, int(passes.max())
        fresh = state.distance[rows].isinf()
        if examples is not None:
            row = replace(row, fixed={**row.fixed, row.begins_at: examples})
        trace, calls = state.trace(rows), list[Returned]()
        options = self._options_of(rows) | {"seed": (state.best.seed + 1009 * place + 7919 * number) % 2**32}
        options |= {"trace": trace, "watch": calls.append, "spent": most - passes, "max_queries": most}
        try:
            result = run_at(row, *self._nouns_of(rows), radii, settings, **options)
        except (AttackFailed, ModelFailed, Unsupported) as error:
            self._error = error
            self._open[place, rows] = False
            self._step[place, rows], self._upper[place, rows] = 0.0, torch.inf
            if not isinstance(error, Unsupported):
                state.crash(rows, error, calls)
                state.runs[rows] += 1
            return
        self._completed = True
        state.take_traced(rows, result, place, trace, most - passes, self._classifier)
        if radii is not None:
            self._learn(place, rows, radii.to(state.distance), fresh)
        self._report()

    def _nouns_of(self, rows: Tensor) -> tuple[Classifier, Tensor, Tensor, ThreatModel]:
        """What `run_attack` takes by position, of some images."""
        best = self.state.best
        return self._classifier, self._inputs[rows], best.labels[rows], best.threat_model

    def _options_of(self, rows: Tensor) -> dict[str, Any]:
        """What `run_attack` takes by keyword in every run, of some images."""
        best = self.state.best
        targets = None if best.targets is None else best.targets[rows]
        return {"targets": targets, "first": self._places[rows.to(self._places.device)], "logits": best.logits[rows]}

    def _report(self) -> None:
        """Report progress in whole images."""
        if self._progress is None or not len(self._images):
            return
        share = float(self.state.queries_used[self._images].double().mean()) / self._limits.max_queries
        new = min(int(share * len(self._images)), len(self._images)) - self._reported
        if new > 0:
            self._progress(new)
            self._reported += new
