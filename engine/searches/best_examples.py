"""The nearest judged example of each image over any number of runs, what all of them cost, and the curve of both."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, ThreatModel, as_implementation, run_attack
from ...adapters.criterion import is_fooled
from ...adapters.result import SURROGATE_PASSES, radius_with_tolerance
from ...adapters.running.judge import perturbation_distances, quantise
from ...adapters.running.library_call import LibraryOutput
from ...adapters.running.trace import CurvePoint, Trace
from ...adapters.threat_model import NORMS

_OF_AN_EXAMPLE = ("adv_inputs", "adv_logits", "success", "success_8bit", "draws_fooled")
_QUERIES = ("forwards", "backwards", *SURROGATE_PASSES)
LINE_QUERIES = 6  # the line between an example and its image is known to 0.16 % of its length then
_DEEPEST = 0.1  # share of the line that is searched


def copy_examples(total: AttackResult, rows: Tensor, result: AttackResult, better: Tensor) -> None:
    """Put the examples of some images of a result into another one, in place.

    Args:
        total: what is written to.
        rows: the images of `total` that `result` is about, shape (n,).
        result: of those images.
        better: which of them are copied, shape (n,) bool.
    """
    pairs = [(getattr(total, name), getattr(result, name)) for name in _OF_AN_EXAMPLE]
    for kept, new in (*pairs, *zip(total.distances, result.distances, strict=True)):
        if kept is not None:
            kept[rows[better]] = new[better]


def add_costs(total: AttackResult, rows: Tensor, result: AttackResult) -> None:
    """Add the queries and seconds of a result about some images to those of another one, in place."""
    for name in _QUERIES:
        if (spent := getattr(total, name)) is not None:
            spent[rows] += getattr(result, name)
    total.seconds[rows.cpu()] += result.seconds


class BestExamples:
    """State of a search over runs that are judged one by one.

    `best` is kept up to date in place; `distance` is how far its examples are, (N,) float64, inf where nothing has
    fooled the model; `runs` counts the runs of each image; `winner` is the place of the attack that found each example,
    -1 where none did. `curves` have a point for each time that an image's judged distance fell, of traced runs.

    Args:
        best: a result to begin with, whose examples count once they are taken.
        inputs: clean images, float32, shape (N, C, H, W).
        pixels: success and distance count on the examples rounded to 8 bits.
    """

    def __init__(self, best: AttackResult, inputs: Tensor, *, pixels: bool):
        self.best, self._inputs, self._pixels = best, inputs, pixels
        self.distance = torch.full_like(best.distances.l2, torch.inf)
        self.runs = torch.zeros_like(best.labels)
        self.winner = torch.full_like(best.labels, -1)
        self.curves: list[list[CurvePoint]] = [[] for _ in range(len(best.labels))]
        self._violations, self._errors = list(best.violations), list(best.errors)

    @property
    def queries_used(self) -> Tensor:
        """Passes that each image has cost so far, shape (N,)."""
        return self.best.forwards + self.best.backwards

    def take(self, rows: Tensor, result: AttackResult, place: int | Tensor = 0, *, is_start: bool = False) -> Tensor:
        """Take in a run: what it cost, and what it returned where that is nearer than the best so far.

        Args:
            rows: the images that it ran on.
            result: what came back.
            place: of the attack in the search, one for all images or of each, shape (rows,).
            is_start: it is what the search began with, whose cost is counted already.

        Returns:
            Which images it fooled, shape (rows,) bool.
        """
        if not is_start:
            add_costs(self.best, rows, result)
            self._errors += result.errors
        return self._keep_nearer(rows, result, torch.zeros_like(rows) + place)

    def take_traced(
        self,
        rows: Tensor,
        result: AttackResult,
        place: int | Tensor,
        trace: Trace,
        start: Tensor,
        classifier: Classifier,
    ) -> None:
        """Take in a traced run: also what it asked about, where that is nearer than all that it returned.

        Args:
            rows: the images that it ran on.
            result: what came back.
            place: of the attack in the search, one for all images or of each, shape (rows,).
            trace: what it noted.
            start: the passes that each image's trace of this run begins at, shape (rows,).
            classifier: the model, for the judge.
        """
        before, earlier = self.distance[rows].clone(), self.queries_used[rows] - start.to(rows)
        places = torch.zeros_like(rows) + place
        self.take(rows, result, places)
        self.runs[rows] += 1
        spent = self.queries_used[rows]
        seen = (trace.distance < self.distance[rows]).nonzero()[:, 0]
        if len(seen):
            self._keep_nearer(rows[seen], self._judge(rows[seen], trace.nearest[seen], classifier), places[seen])
        for i, image in enumerate(rows.tolist()):
            least, so_far = float(self.distance[image]), float(before[i])
            if not least < so_far:
                continue
            points = [] if self._pixels else trace.curves[i]
            # What was nearer than the judged best did not hold; what the library returned unasked it had at the end.
            kept = [CurvePoint(passes + int(earlier[i]), size) for passes, size in points if least <= size < so_far]
            if not kept or kept[-1].distance > least:
                kept.append(CurvePoint(int(spent[i]), least))
            self.curves[image] += kept

    def trace(self, rows: Tensor) -> Trace:
        """For a run on some images: it notes what is nearer than the best so far; for 8 bits, whatever fools."""
        best, targets = self.best, self.best.targets
        below = None if self._pixels else self.distance[rows]
        aims = None if targets is None else targets[rows]
        return Trace(self._inputs[rows], best.labels[rows], aims, best.threat_model.norm, below=below)

    def crash(self, rows: Tensor, error: Exception, calls: Sequence[LibraryOutput] = ()) -> None:
        """Note that a run crashed on all of these images.

        Args:
            rows: the images; a call may be about any of them, and one that was fooled has no further restart.
            error: how it ended.
            calls: what the library was called with before, which counts.
        """
        for call in calls:
            if call.rows is not None:
                images = rows[call.rows.to(rows.device)]
                for name in ("forwards", "backwards"):
                    getattr(self.best, name).index_add_(0, images, getattr(call, name).to(rows))
        self._errors.append(str(error))
        for image in rows.tolist():
            self._flag(image, ("crashed",))

    def finish(self) -> AttackResult:
        """The best so far, with the violations and errors of all runs."""
        return replace(self.best, violations=tuple(self._violations), errors=tuple(self._errors))

    def finish_within(self, threat_model: ThreatModel) -> AttackResult:
        """The best so far, judged by a threat model that may have a radius."""
        success = self.best.success & (self.distance <= radius_with_tolerance(threat_model))
        budget = self.distance.masked_fill(~success, torch.inf).where(self.best.attacked, 0.0)
        flags = {"success": success, "success_8bit": self.best.success_8bit & success, "budget": budget}
        return replace(self.finish(), threat_model=threat_model, **flags)

    def _judge(self, rows: Tensor, examples: Tensor, classifier: Classifier) -> AttackResult:
        """The judge's view of examples that an attack asked about and did not return; no query is counted."""
        best, targets = self.best, self.best.targets
        return run_attack(
            _handing_in(examples),
            classifier,
            self._inputs[rows],
            best.labels[rows],
            best.threat_model,
            targets=None if targets is None else targets[rows],
            seed=best.seed,
            logits=best.logits[rows],
            batch_size=len(rows),
        )

    def _keep_nearer(self, rows: Tensor, result: AttackResult, places: Tensor) -> Tensor:
        """Keep what is nearer than the best so far; which images are fooled, shape (rows,) bool."""
        hit, distance = result.success, result.distance
        if self._pixels:
            hit = result.success_8bit
            shift = perturbation_distances(quantise(self._inputs[rows]), quantise(result.adv_inputs))
            distance = getattr(shift, result.threat_model.norm)
        nearer = hit & (distance < self.distance[rows])
        self.distance[rows[nearer]] = distance[nearer]
        self.winner[rows[nearer]] = places[nearer]
        copy_examples(self.best, rows, result, nearer)
        for image, taken, kinds in zip(rows.tolist(), nearer.tolist(), result.violations, strict=True):
            if taken:
                self._violations[image] = kinds
            elif kinds:
                self._flag(image, kinds)
        return hit

    def _flag(self, image: int, kinds: tuple[str, ...]) -> None:
        """An image that nothing has fooled yet is as suspect as each of its runs."""
        if self.distance[image].isinf():
            self._violations[image] = tuple(dict.fromkeys((*self._violations[image], *kinds)))


def line_search_implementation(examples: Tensor, queries: int) -> Implementation:
    """An implementation that bisects the line between each image and its example by so many forward passes.

    Args:
        examples: of the images of the run, shape (n, C, H, W).
        queries: of each image.
    """

    def line(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        low, high = (torch.full_like(labels, share, dtype=torch.double) for share in (1 - _DEEPEST, 1.0))
        change = examples.to(inputs) - inputs
        for _ in range(queries):
            middle = (low + high) / 2
            hit = is_fooled(model(inputs + change * middle.to(inputs).view(-1, 1, 1, 1)), labels, targets)
            low, high = low.where(hit, middle), middle.where(hit, high)
        return inputs + change * high.to(inputs).view(-1, 1, 1, 1)

    return as_implementation(line, norms=NORMS, kind="minimum-norm", order="kept", targeted="yes")


def _handing_in(examples: Tensor) -> Implementation:
    """An implementation that hands in these examples and asks nothing."""

    def best(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        del model, inputs, labels
        return examples

    return as_implementation(best, norms=NORMS, kind="minimum-norm", order="kept", targeted="yes")
