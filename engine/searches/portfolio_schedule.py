"""Runs the rounds of a portfolio search: chooses the images, the number of passes and the radii of each run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, ThreatModel, canonical_attack, run_attack
from ...adapters.catalogue.lookup import supports_per_image_radii
from ...adapters.running.library_call import LibraryOutput
from ...adapters.threat_model import Norm
from ...errors import AttackFailed, ModelFailed, Unsupported
from .best_examples import LINE_QUERIES, BestExamples, line_search_implementation
from .portfolio_parameters import (
    RoundContext,
    early_passes,
    is_one_step,
    last_passes,
    min_useful_queries,
    opening_passes,
    round_parameters,
    rounded_radius,
    starts_from_best,
)
from .radius_search import alike, run_at

_SHARE = 48  # passes of an attack in the first round; each further round has twice as many
_SLACK = 8  # too few passes for a further round
_BELOW, _HALF, _LEAST_STEP = 1 / 32, 1 / 2, 1 / 1024  # relative distance of the next run below the best radius
_TRIES, _ROUGH_TRIES = 2, 6  # runs in a fixed-budget attack's round: near the best radius, far from it
FEWEST = 8  # passes of such a run, and of a whole search


class Limits(NamedTuple):
    """Limits of a portfolio search.

    Args:
        max_queries: query budget per image.
        first_radius: first radius of fixed-budget attacks for images that are not fooled. None without such an attack.
        widest: largest radius of fixed-budget attacks.
        eight_bit: whether examples are 8-bit.
    """

    max_queries: int
    first_radius: float | None
    widest: float
    eight_bit: bool


class PortfolioSchedule:
    """A portfolio search in progress.

    Args:
        rows: the attacks. The first one makes the opening.
        classifier: the model under attack.
        inputs: clean images in [0, 1], float32, shape (N, C, H, W).
        base: result before any attack, updated in place.
        places: indices of the images in the data set, shape (N,), which determine their random numbers.
        limits: limits of the search.
        settings: sets of canonical parameters. An attack uses the next set in each of its rounds.
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
        self.state = BestExamples(base, inputs, eight_bit=limits.eight_bit)
        self._rows, self._classifier, self._inputs, self._places = rows, classifier, inputs, places
        self._limits, self._settings = limits, settings
        self._progress: Callable[[int], object] | None = None
        self._images = base.attacked.nonzero()[:, 0]
        shape = len(rows), len(base.labels)
        self._number = torch.zeros(shape, dtype=torch.long, device=inputs.device)  # rounds of each attack on each image
        self._open = torch.ones(shape, dtype=torch.bool, device=inputs.device)
        # For fixed-budget attacks: relative distance below the best radius to try next (0: no round yet), unless
        # fooled.
        self._step = torch.zeros(shape, dtype=torch.double, device=inputs.device)
        self._upper = torch.full(shape, limits.first_radius or limits.widest, dtype=torch.double, device=inputs.device)
        self.searched = torch.zeros_like(self.state.distance)
        self._error: Exception | None = None
        self._completed, self._reported, self._end = False, 0, limits.max_queries

    def run_all(self, progress: Callable[[int], object] | None = None) -> None:
        """Run all rounds, until the remaining passes of every image are too few for any attack.

        Args:
            progress: called with the increase in progress since the last call, as a number of images.

        Raises:
            AttackFailed, ModelFailed: if no run of any attack was completed.
        """
        self._progress = progress
        self._end = self._limits.max_queries - self._line_passes - self._last_passes
        once, share = [bool(place) and is_one_step(row, self._norm) for place, row in enumerate(self._rows)], _SHARE
        least = [
            min_useful_queries(row, self._classes, one_step=step, cost=self._cost)
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
        """Run the opening, then the attacks that get their passes in one block before the rounds."""
        most = self._limits.max_queries
        early = [
            early_passes(row, self._classes, most, one_step=step, cost=self._cost)
            for row, step in zip(self._rows, once, strict=True)
        ]
        opening = opening_passes(self._rows[0], before_step=any(early[place] for place in order if once[place]))
        self._take(0, opening, slack=_SLACK, least=FEWEST)
        for place in order:
            if early[place]:
                self._take(place, early[place], slack=_SLACK, least=least[place])

    @property
    def _classes(self) -> int:
        return self.state.best.logits.shape[1]

    @property
    def _cost(self) -> int:
        """Number of passes that one call of the model counts: for a random model, the number of averaged samples."""
        return self._classifier.eot if self._classifier.random else 1

    @property
    def _norm(self) -> Norm:
        return self.state.best.threat_model.norm

    @property
    def _last(self) -> int | None:
        """Index of the attack that makes the final run from the nearest examples; None without such an attack.

        None for a random model, because the example from which the run starts may no longer fool the model.
        """
        able = [place for place, row in enumerate(self._rows) if row.begins_at]
        return able[0] if able and not self._classifier.random else None

    @property
    def _last_passes(self) -> int:
        return 0 if self._last is None else last_passes(self._limits.max_queries, self._norm)

    def _go_on_from_the_nearest(self) -> None:
        """Use the reserved passes for a final run that starts at the nearest example of each image."""
        self._end += self._last_passes
        if self._last is not None and self._last_passes:
            self._take(self._last, self._limits.max_queries, slack=0, least=FEWEST, begun=True)

    @property
    def _line_passes(self) -> int:
        """Number of passes reserved for the line search at the end.

        0 in l0: all points of the line between an image and its example change the same number of components.
        """
        passes = LINE_QUERIES * self._cost
        return passes if 4 * passes <= self._limits.max_queries and self._norm in ("linf", "l2", "l1") else 0

    def _walk_the_line(self) -> None:
        """Use the last passes to bisect the line between each example and its clean image."""
        state = self.state
        rows = self._images[state.distance[self._images].isfinite()]
        if not self._line_passes or not len(rows):
            return
        line, trace = line_search_implementation(state.best.adv_inputs[rows], LINE_QUERIES), state.trace(rows)
        options = {"seed": state.best.seed, "batch_size": len(rows), "trace": trace}
        result = run_attack(line, *self._nouns_of(rows), **self._options_of(rows), **options)
        state.take_traced(rows, result, state.winner[rows], trace, torch.zeros_like(rows), self._classifier)

    def _take(self, place: int, share: int, *, slack: int, least: int, begun: bool = False) -> None:
        """Run one round of an attack on every image for which at least `least` passes are available.

        An image gets `share` passes in the round. If fewer than `slack` passes would then be left, it gets all of its
        remaining passes. If `begun`, the round starts at the nearest example of each image that has one.
        """
        rows = self._images
        left = self._end - self.state.queries_used[rows]
        passes = left.where(left - share < slack, share)
        able = (passes >= least) & self._open[place, rows]
        rows, passes = rows[able], passes[able]
        if canonical_attack(self._rows[place]).kind == "fixed-budget":
            self._search_below(place, rows, passes)
        else:
            self.searched[rows] = torch.inf
            near = self.state.best.success[rows] & (begun | self._near(place, rows))
            for some in (near.nonzero()[:, 0], (~near).nonzero()[:, 0]):
                self._take_alike(place, rows[some], passes[some], begun=bool(near[some].any()))
        self._number[place, rows] += 1

    def _near(self, place: int, rows: Tensor) -> Tensor:
        """Return for each image whether the attack's next round starts at the nearest example, shape (rows,) bool."""
        able = bool(self._rows[place].begins_at) and not self._classifier.random
        numbers = self._number[place, rows].tolist()
        return torch.tensor(
            [able and starts_from_best(number, self._norm) for number in numbers], device=rows.device
        ).bool()

    def _take_alike(self, place: int, rows: Tensor, passes: Tensor, *, begun: bool) -> None:
        """Run one round of a minimum-norm attack, on all images from an example or on all from the clean image."""
        for settings, number, some in self._groups(place, rows, passes, begun=begun):
            images = rows[some]
            examples = self.state.best.adv_inputs[images] if begun else None
            self._run(place, images, passes[some], settings, number, examples=examples)

    def _search_below(self, place: int, rows: Tensor, passes: Tensor) -> None:
        """Run a fixed-budget attack below the best radius of each image, as often as the passes of the round allow."""
        end = self.state.queries_used[rows] + passes
        known = self.state.distance[rows].isfinite() & (self._step[place, rows] == 0)
        self._step[place, rows] = self._step[place, rows].where(~known, _BELOW).clamp(min=_BELOW / 8)
        rough = (self._step[place, rows] >= _HALF / 2) | self.state.distance[rows].isinf()
        one_run = torch.where(rough, passes // _ROUGH_TRIES, passes // _TRIES).clamp(min=FEWEST)
        attempt = 0
        while True:
            radii = self._radii(place, rows)
            going = (end - self.state.queries_used[rows] >= one_run) & (radii > 0)
            rows, end, one_run, radii = rows[going], end[going], one_run[going], radii[going]
            if not len(rows):
                return
            for settings, number, some in self._groups(place, rows, one_run):
                images, left = rows[some], (end - self.state.queries_used[rows])[some]
                mixed = supports_per_image_radii(self._rows[place], self._norm, settings)
                for one in alike(radii[some], mixed=mixed):
                    tried = radii[some][one]
                    self._run(place, images[one], left[one], settings, number + 101 * attempt, radii=tried)
            attempt += 1

    def _radii(self, place: int, rows: Tensor) -> Tensor:
        """Return the radius of each image's next run, float64; 0 if no radius is left to try."""
        best, step, upper = self.state.distance[rows], self._step[place, rows], self._upper[place, rows]
        below = (best * (1 - step)).clamp(max=self._limits.widest)
        if self._norm == "l0":
            below = torch.minimum(below.floor(), best - 1)
        below = below.where(step >= _LEAST_STEP, 0.0)
        return below.where(best.isfinite(), upper.where(upper <= self._limits.widest, 0.0))

    def _learn(self, place: int, rows: Tensor, radii: Tensor, fresh: Tensor) -> None:
        """Choose the next radius of each image, after runs at `radii`.

        `fresh` marks images that no earlier run fooled, shape (rows,) bool.
        """
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
        """Group images with equal settings.

        Returns:
            For each group, the settings, the number of the round, and indices into `rows`.
        """
        groups: dict[Any, tuple[dict[str, Any], int, list[int]]] = {}
        components = self._inputs[0].numel()
        for i, (image, allowed) in enumerate(zip(rows.tolist(), passes.tolist(), strict=True)):
            number, radius = int(self._number[place, image]), rounded_radius(float(self.state.distance[image]))
            given = self._settings[number % len(self._settings)]
            settings = round_parameters(
                self._rows[place], given, RoundContext(number, allowed, radius, self._norm, components, begun)
            )
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
        """Run an attack once on some images, and add its result to the search.

        A minimum-norm attack starts at `examples`, or at the clean images without them. A fixed-budget attack runs at
        `radii`.
        """
        row, state, most = self._rows[place], self.state, int(passes.max())
        fresh = state.distance[rows].isinf()
        if examples is not None:
            row = replace(row, fixed={**row.fixed, row.begins_at: examples})
        trace, calls = state.trace(rows), list[LibraryOutput]()
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
        best = self.state.best
        return self._classifier, self._inputs[rows], best.labels[rows], best.threat_model

    def _options_of(self, rows: Tensor) -> dict[str, Any]:
        best = self.state.best
        targets = None if best.targets is None else best.targets[rows]
        return {"targets": targets, "first": self._places[rows.to(self._places.device)], "logits": best.logits[rows]}

    def _report(self) -> None:
        if self._progress is None or not len(self._images):
            return
        share = float(self.state.queries_used[self._images].double().mean()) / self._limits.max_queries
        new = min(int(share * len(self._images)), len(self._images)) - self._reported
        if new > 0:
            self._progress(new)
            self._reported += new
