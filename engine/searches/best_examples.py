"""Keeps the nearest adversarial example of each image over several runs, with the total cost and distance curves."""

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
LINE_QUERIES = 6  # they locate the boundary to 0.16 % of the line between an example and its image
_DEEPEST = 0.1  # searched proportion of the line


def copy_examples(total: AttackResult, rows: Tensor, result: AttackResult, better: Tensor) -> None:
    """Copy the examples of some images from one result into a result with more images, in place.

    Args:
        total: result that is changed.
        rows: indices in `total` of the images of `result`, shape (n,).
        result: result on these n images.
        better: whether to copy the example of each image, shape (n,) bool.
    """
    pairs = [(getattr(total, name), getattr(result, name)) for name in _OF_AN_EXAMPLE]
    for kept, new in (*pairs, *zip(total.distances, result.distances, strict=True)):
        if kept is not None:
            kept[rows[better]] = new[better]


def add_costs(total: AttackResult, rows: Tensor, result: AttackResult) -> None:
    """Add the queries and seconds of a result on some images to a result with more images, in place.

    `rows` are the indices of these images in `total`, shape (n,).
    """
    for name in _QUERIES:
        if (spent := getattr(total, name)) is not None:
            spent[rows] += getattr(result, name)
    total.seconds[rows.cpu()] += result.seconds


class BestExamples:
    """State of a search over several attack runs: the best judged example of each image, and the costs.

    Args:
        best: initial result. Its examples count only after a call of `take` with `is_start`.
        inputs: clean images, float32, shape (N, C, H, W).
        eight_bit: whether success and distance are measured on 8-bit examples.

    Attributes:
        best: the best result so far, updated in place.
        distance: distance of the best examples, (N,) float64; inf without an example.
        runs: number of runs of each image, (N,).
        winner: index of the attack that found each example, (N,); -1 without an example.
        curves: for each image, a point whenever its judged distance decreases. Only traced runs add points.
    """

    def __init__(self, best: AttackResult, inputs: Tensor, *, eight_bit: bool):
        self.best, self._inputs, self._pixels = best, inputs, eight_bit
        self.distance = torch.full_like(best.distances.l2, torch.inf)
        self.runs = torch.zeros_like(best.labels)
        self.winner = torch.full_like(best.labels, -1)
        self.curves: list[list[CurvePoint]] = [[] for _ in range(len(best.labels))]
        self._violations, self._errors = list(best.violations), list(best.errors)

    @property
    def queries_used(self) -> Tensor:
        """Queries used for each image so far, shape (N,)."""
        return self.best.forwards + self.best.backwards

    def take(self, rows: Tensor, result: AttackResult, place: int | Tensor = 0, *, is_start: bool = False) -> Tensor:
        """Add the cost of a run, and keep the run's examples that are nearer than the best examples so far.

        Args:
            rows: indices of the run's images.
            result: result of the run.
            place: index of the attack in the search, for all images or for each image, shape (rows,).
            is_start: True for the initial result, whose cost is already counted.

        Returns:
            Whether the run fooled each image, shape (rows,) bool.
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
        """Add a run with a trace.

        A point that the attack queried counts as an example if the point is nearer than all returned examples.

        Args:
            rows: indices of the run's images.
            result: result of the run.
            place: index of the attack in the search, for all images or for each image, shape (rows,).
            trace: trace of the run.
            start: number of queries of each image with which the counts of the trace begin, shape (rows,).
            classifier: the model, by which the queried points are judged.
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
            # Points nearer than the judged best were not confirmed; an unqueried returned example counts at the end.
            kept = [CurvePoint(passes + int(earlier[i]), size) for passes, size in points if least <= size < so_far]
            if not kept or kept[-1].distance > least:
                kept.append(CurvePoint(int(spent[i]), least))
            self.curves[image] += kept

    def trace(self, rows: Tensor) -> Trace:
        """Return a new trace for a run on some images.

        The trace records queried points that fool the model and are nearer than the best example so far. With 8-bit
        examples, the trace records all points that fool the model.
        """
        best, targets = self.best, self.best.targets
        below = None if self._pixels else self.distance[rows]
        aims = None if targets is None else targets[rows]
        return Trace(self._inputs[rows], best.labels[rows], aims, best.threat_model.norm, below=below)

    def crash(self, rows: Tensor, error: Exception, calls: Sequence[LibraryOutput] = ()) -> None:
        """Record that a run crashed on all of its images.

        Args:
            rows: indices of the images.
            error: the error.
            calls: the library calls before the crash. Their queries are counted. A library call may cover some of the
                images, because fooled images are not restarted.
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
        """Return the best result so far, with the invalid reasons and errors of all runs."""
        return replace(self.best, violations=tuple(self._violations), errors=tuple(self._errors))

    def finish_within(self, threat_model: ThreatModel) -> AttackResult:
        """Return the best result so far, in which only examples within the radius of a threat model are successes."""
        success = self.best.success & (self.distance <= radius_with_tolerance(threat_model))
        budget = self.distance.masked_fill(~success, torch.inf).where(self.best.attacked, 0.0)
        flags = {"success": success, "success_8bit": self.best.success_8bit & success, "budget": budget}
        return replace(self.finish(), threat_model=threat_model, **flags)

    def _judge(self, rows: Tensor, examples: Tensor, classifier: Classifier) -> AttackResult:
        """Judge points that an attack queried but did not return. The queries of these points are not counted again."""
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
        """Keep the examples that are nearer than the best examples so far.

        Returns:
            Whether each image is fooled, shape (rows,) bool.
        """
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
        """Add the invalid reasons of a run to an image that has not been fooled yet."""
        if self.distance[image].isinf():
            self._violations[image] = tuple(dict.fromkeys((*self._violations[image], *kinds)))


def line_search_implementation(examples: Tensor, queries: int) -> Implementation:
    """Build an implementation that bisects the line between each clean image and its example, with forward passes.

    Args:
        examples: examples of the images, shape (n, C, H, W).
        queries: forward passes per image.
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
    """Build an implementation that returns the given examples and makes no queries."""

    def best(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        del model, inputs, labels
        return examples

    return as_implementation(best, norms=NORMS, kind="minimum-norm", order="kept", targeted="yes")
