"""Worst-case search: attacks run one after the other, each on the images that earlier attacks have not fooled.

For a random model, attacks continue on an image until all of its samples are fooled, because a later attack may fool
more samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, ThreatModel, canonical_attack, find_implementation
from ...errors import InvalidInput, Unsupported
from .best_examples import add_costs, copy_examples
from .kinds import Search, joint_row
from .single import run_single

_VERSION = "1"  # part of the key of a run, raised whenever the result of the same attacks changes


class WorstCase(Search):
    """`worst-case(A,B,...)`: attacks that run one after the other, each on the images that are not fooled yet."""

    kind = "worst-case"
    stands_for_several = sums_up = True

    def find_row(self) -> Implementation:
        """Return an implementation that represents all attacks of the worst case, with their common norms."""
        rows = [find_implementation(each) for each in self.members]
        return joint_row(",".join(row.name for row in rows), rows, "Worst case", "fixed-budget")

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> AttackResult:
        """Run `run_worst_case`."""
        return run_worst_case(dict(zip(self.members, self.rows(row), strict=True)), *nouns, **options)

    def version(self, row: Implementation, versions: Sequence[str] = ()) -> str:
        """Return the version of the worst case, the versions of all libraries in it, and the digests of users' attacks.

        Args:
            row: implementation that represents all attacks.
            versions: version of each attack, in the order of the attacks.
        """
        parts = [
            version if each.given is not None else f"{each.library} {version}"
            for each, version in zip(self.rows(row), versions, strict=True)
        ]
        return f"worst case {_VERSION}, {', '.join(dict.fromkeys(parts))}"

    @staticmethod
    def check_member(search: Search, row: Implementation, threat_model: ThreatModel) -> None:
        """Raise an error for an attack that cannot be part of a worst case.

        `search` is the search of the attack, which is `Single` for an attack without a search.

        Raises:
            InvalidInput: if the attack is inside a search, or is a minimum-norm attack and the threat model has no
                radius.
            Unsupported: if the attack is fitted on all images, or cannot be given by name.
        """
        if search.searches_radius:
            raise InvalidInput(
                f"`stop_when_fooled` needs attacks at one radius, got the search {search.name}; run it separately"
            )
        if canonical_attack(row).kind == "minimum-norm" and threat_model.epsilon is None:
            raise InvalidInput(
                f"`stop_when_fooled` needs `epsilon` for {search.name}, a minimum-norm attack: "
                "without a radius any change counts"
            )
        if row.universal or row.fit:
            raise Unsupported(
                f"{row.name} is fitted on all images, so `stop_when_fooled` cannot skip fooled ones; run it separately"
            )
        if set(row.name) & set(",()"):
            raise Unsupported(f"`stop_when_fooled` needs a file name without commas and brackets, got {row.name}")
        if row.given is not None and row.library == "user":
            raise Unsupported(
                f"`stop_when_fooled` needs attacks by name, got the object {row.attack}; put it into a file and give "
                "'my_file.py:NAME'"
            )


@dataclass(frozen=True, kw_only=True)
class WorstCaseResult(AttackResult):
    """Result of the worst case over several attacks, and their total cost.

    No attack runs on an image that is misclassified when clean. Unless the model is random, no attack runs on an image
    after the attack that fools it.

    Args:
        winner: index of the attack whose example fools each image, (N,) int64; -1 without an example.
        tried: number of attacks that ran on each image, (N,) int64.
    """

    winner: Tensor
    tried: Tensor


def run_worst_case(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    members: Mapping[str, Implementation],
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    targets: Tensor | None = None,
    first: int = 0,
    logits: Tensor | None = None,
    progress: Callable[[int], object] | None = None,
    **options: Any,
) -> WorstCaseResult:
    """Run the attacks of a worst case in their order, each on the images that earlier attacks have not fooled.

    An image is fooled if one attack fools it validly. For a random model, the example that fools most of the model's
    samples counts. If no attack fools an image and one of the results is invalid, the result of the worst case is
    invalid, and the image does not count as robust. The example of such an image is that of the last usable run.

    Args:
        members: the attacks by name, in their order.
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, epsilon, targeted.
        targets: target classes, shape (N,), for a targeted threat model.
        first: index of the first image in the whole data set.
        logits: logits of the clean images, shape (N, K). None to compute them.
        progress: called with the number of finished images. If `progress` has a method `asked`, this method is called
            with the number of queries.
        **options: options of `run_single`, and the parameters of each attack, as a dict under the name of the attack.

    Raises:
        DavylampError: any error of one of the attacks, because the worst case is then unknown.
    """
    parameters = {name: options.pop(name) for name in members}
    places = torch.arange(len(labels), device="cpu") + first
    reported = _Passes(progress)

    def run(name: str, images: Tensor, logits: Tensor | None) -> AttackResult:
        return run_single(
            members[name],
            classifier,
            inputs[images],
            labels[images],
            threat_model,
            targets=None if targets is None else targets[images],
            first=places[images.cpu()],
            logits=logits,
            progress=reported,
            **options,
            **parameters[name],
        )

    opening, *others = members
    total = _begin(run(opening, torch.arange(len(labels), device=inputs.device), logits))
    settled = 0
    for place, name in enumerate(others, 1):
        left = (total.attacked & (total.fooled_rate < 1)).nonzero()[:, 0]
        if not len(left):
            break
        reported.report(len(labels) - len(left) - settled)
        settled = len(labels) - len(left)
        total = _take(total, left, run(name, left, total.logits[left]), place)
    reported.report(len(labels) - settled)
    return replace(total, implementation=WorstCase(",".join(members)).name, parameters=parameters, curves=None)


class _Passes:
    """Progress callback for one attack of a worst case, which forwards the number of queries.

    It does not forward the number of images that the attack has finished, because later attacks may run on these
    images. The worst case calls `report` for finished images.
    """

    def __init__(self, progress: Callable[[int], object] | None):
        self._progress = progress
        self.asked: Any = getattr(progress, "asked", None)

    def __call__(self, images: int) -> None:
        """Accept an attack's report of finished images, and do nothing. Attacks need a progress callback."""

    def report(self, images: int) -> None:
        if self._progress is not None and images:
            self._progress(images)


def _begin(result: AttackResult) -> WorstCaseResult:
    """Convert the result of the first attack to a result of the worst case, with copied tensors that can be changed."""
    fields: dict[str, Any] = {
        name: value.clone() if isinstance(value, Tensor) else value for name, value in vars(result).items()
    }
    fields["distances"] = type(result.distances)(*(each.clone() for each in result.distances))
    return WorstCaseResult(**fields, winner=torch.where(result.success, 0, -1), tried=result.attacked.long())


def _take(total: WorstCaseResult, rows: Tensor, result: AttackResult, place: int) -> WorstCaseResult:
    """Add the cost of an attack on the images `rows` to a worst case, and keep its examples that are better."""
    add_costs(total, rows, result)
    total.tried[rows] += 1
    fooled, before, after = total.success[rows], total.fooled_rate[rows], result.fooled_rate
    better = result.success | result.usable & ((before <= after) | ~total.usable[rows])
    better = torch.where(fooled, result.success & (before < after), better)  # fooled before: only for random models
    total.winner[rows[result.success & better]] = place
    copy_examples(total, rows, result, better)
    violations = list(total.violations)
    for image, kinds, done in zip(rows.tolist(), result.violations, (fooled | result.success).tolist(), strict=True):
        violations[image] = () if done else tuple(dict.fromkeys((*violations[image], *kinds)))
    return replace(total, violations=tuple(violations), errors=(*total.errors, *result.errors))
