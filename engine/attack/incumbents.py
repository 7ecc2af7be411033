"""The nearest judged example of each image over any number of runs, what all of them cost, and the curve of both."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, ThreatModel, run_attack
from ...adapters.result import allowed_radius
from ...adapters.running.call import Returned
from ...adapters.running.trace import CurvePoint, Trace
from .line import handing_in
from .nearest import NearestExamples


class Incumbents(NearestExamples):
    """State of a search by several attacks.

    `winner` is the place of the attack that found each example, -1 where none did. `curves` have a point for each time
    that an image's judged distance fell.

    Args:
        base: a result in which nothing has been attacked yet.
        inputs: clean images, shape (N, C, H, W).
        pixels: success and distance count on the examples rounded to 8 bits.
    """

    def __init__(self, base: AttackResult, inputs: Tensor, *, pixels: bool):
        super().__init__(base, inputs, pixels=pixels)
        self.winner = torch.full_like(base.labels, -1)
        self.curves: list[list[CurvePoint]] = [[] for _ in range(len(base.labels))]

    @property
    def used(self) -> Tensor:
        """Passes that each image has cost so far, shape (N,)."""
        return self.best.forwards + self.best.backwards

    def trace(self, rows: Tensor) -> Trace:
        """For a run on some images: it notes what is nearer than the best so far; for 8 bits, whatever fools."""
        best, targets = self.best, self.best.targets
        below = None if self._pixels else self.distance[rows]
        aims = None if targets is None else targets[rows]
        return Trace(self._inputs[rows], best.labels[rows], aims, best.threat_model.norm, below=below)

    def take(
        self,
        rows: Tensor,
        result: AttackResult,
        trace: Trace,
        start: Tensor,
        classifier: Classifier,
        place: int | Tensor,
    ) -> None:
        """Take in a run: its cost, what it returned where that is nearer, and what it saw where that is nearer still.

        Args:
            rows: the images that it ran on.
            result: what came back.
            trace: what it noted.
            start: the passes that each image's trace of this run begins at, shape (rows,).
            classifier: the model, for the judge.
            place: of the attack in the search, one for all images or of each, shape (rows,).
        """
        before, earlier = self.distance[rows].clone(), self.used[rows] - start.to(rows)
        self._add_costs(rows, result)
        self.runs[rows] += 1
        spent = self.used[rows]
        places = torch.zeros_like(rows) + place
        self._keep(rows, result, places)
        seen = (trace.distance < self.distance[rows]).nonzero()[:, 0]
        if len(seen):
            self._keep(rows[seen], self._judge(rows[seen], trace.nearest[seen], classifier), places[seen])
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

    def crash(self, rows: Tensor, error: Exception, calls: Sequence[Returned]) -> None:
        """Note that a run crashed on all of these images; what it asked before counts.

        Args:
            rows: the images; a call may be about any of them, and one that was fooled has no further restart.
            error: how it ended.
            calls: what the library was called with.
        """
        for call in calls:
            if call.rows is not None:
                images = rows[call.rows.to(rows.device)]
                for name in ("forwards", "backwards"):
                    getattr(self.best, name).index_add_(0, images, getattr(call, name).to(rows))
        self._errors.append(str(error))
        self.runs[rows] += 1
        for image in rows.tolist():
            self._flag(image, ("crashed",))

    def finish(self, threat_model: ThreatModel) -> AttackResult:
        """The best, judged by a threat model that may have a radius."""
        success = self.best.success & (self.distance <= allowed_radius(threat_model))
        budget = self.distance.masked_fill(~success, torch.inf).where(self.best.attacked, 0.0)
        judged = {"violations": tuple(self._violations), "errors": tuple(self._errors), "threat_model": threat_model}
        flags = {"success": success, "success_8bit": self.best.success_8bit & success, "budget": budget}
        return replace(self.best, **judged, **flags)

    def _judge(self, rows: Tensor, examples: Tensor, classifier: Classifier) -> AttackResult:
        """The judge's view of examples that an attack asked about and did not return; no query is counted."""
        best, targets = self.best, self.best.targets
        return run_attack(
            handing_in(examples),
            classifier,
            self._inputs[rows],
            best.labels[rows],
            best.threat_model,
            targets=None if targets is None else targets[rows],
            seed=best.seed,
            logits=best.logits[rows],
            batch_size=len(rows),
        )

    def _keep(self, rows: Tensor, result: AttackResult, place: Tensor) -> None:
        """Take what is nearer than the best so far."""
        _, nearer = self._keep_nearer(rows, result)
        self.winner[rows[nearer]] = place[nearer]
