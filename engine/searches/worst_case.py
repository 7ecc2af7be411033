"""Attacks one after the other on the same images: none is made on an image that one before it has fooled.

Of a model that draws random numbers an image is done when all of its draws are fooled: a later attack may fool more.
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

_VERSION = "1"  # part of the key of a cell, raised whenever the same attacks would come to something else


class WorstCase(Search):
    """`worst-case(A,B,...)`: attacks one after the other, each on the images that none before it has fooled."""

    kind = "worst-case"
    stands_for_several = sums_up = True

    def find_row(self) -> Implementation:
        """The implementation that stands for all: it has the norms that all of them have."""
        rows = [find_implementation(each) for each in self.members]
        return joint_row(",".join(row.name for row in rows), rows, "Worst case", "fixed-budget")

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> AttackResult:
        """As `run_worst_case`."""
        return run_worst_case(dict(zip(self.members, self.rows(row), strict=True)), *nouns, **options)

    def version(self, row: Implementation, versions: Sequence[str] = ()) -> str:
        """Of what is made of several attacks, of every library in it, and of the code of users' attacks.

        Args:
            row: stands for all.
            versions: of each member, in order.
        """
        parts = [
            version if each.given is not None else f"{each.library} {version}"
            for each, version in zip(self.rows(row), versions, strict=True)
        ]
        return f"worst case {_VERSION}, {', '.join(dict.fromkeys(parts))}"

    @staticmethod
    def check_member(search: Search, row: Implementation, threat_model: ThreatModel) -> None:
        """Refuse what cannot be one of several attacks of which the first success counts.

        Raises:
            InvalidInput: for a search, or a minimum-norm attack without a radius.
            Unsupported: if it learns from all images, or is known as an object only.
        """
        if search.searches_radius:
            raise InvalidInput(
                f"expected attacks at one radius with `stop_when_fooled`, got {search.name}: run it apart"
            )
        if canonical_attack(row).kind == "minimum-norm" and threat_model.epsilon is None:
            raise InvalidInput(
                f"expected `epsilon` with `stop_when_fooled` and {search.name}, which looks for the smallest change: "
                "without a radius any change counts"
            )
        if row.universal or row.fit:
            raise Unsupported(f"{row.name} learns from all images, not from those that others leave: run it apart")
        if set(row.name) & set(",()"):
            raise Unsupported(
                f"expected a file without commas and brackets in its name with `stop_when_fooled`: {row.name}"
            )
        if row.given is not None and row.library == "user":
            raise Unsupported(f"{row.name} was handed over: with `stop_when_fooled` name it, my_file.py:{row.attack}")


@dataclass(frozen=True, kw_only=True)
class WorstCaseResult(AttackResult):
    """What attacks came to that ran one after the other, and all that they cost.

    `winner` is the place of the attack whose example fools each image, (N,) int64, -1 where none did; `tried` how many
    ran on it, (N,) int64: those behind the winner did not, unless the model draws random numbers, and on an image that
    it gets wrong none did.
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
    """Run the attacks of a worst case in their order, each on the images that none before it has fooled.

    An image is fooled if one of them fools it by the rules; of a random model the example counts that fools most of its
    draws. What all of them leave is as suspect as each of its runs:
    a violation in one of them is one of the whole, and the image does not count as robust. Its example is that of the
    last run that proves something.

    Args:
        members: the attacks by name, in their order.
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, epsilon, targeted.
        targets: target classes, shape (N,), for a targeted threat model.
        first: place of the first image in the whole data set.
        logits: of the clean images, shape (N, K), where they are known.
        progress: called with the number of images that no attack is left for; its method `asked`, if it has one, with
            the passes just made.
        **options: as for `run_single`; the parameters of each attack by its name.

    Raises:
        DavylampError: whatever one of the attacks raises: what it would have left is then not known.
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
    """What a run of one attack reports with: its passes go on, images are done when no further attack is made."""

    def __init__(self, progress: Callable[[int], object] | None):
        self._progress = progress
        self.asked: Any = getattr(progress, "asked", None)

    def __call__(self, images: int) -> None:
        """Hear of images that one attack has done."""

    def report(self, images: int) -> None:
        """Report images that are done."""
        if self._progress is not None and images:
            self._progress(images)


def _begin(result: AttackResult) -> WorstCaseResult:
    """The result so far: that of the first attack, in tensors that can be written to."""
    fields: dict[str, Any] = {
        name: value.clone() if isinstance(value, Tensor) else value for name, value in vars(result).items()
    }
    fields["distances"] = type(result.distances)(*(each.clone() for each in result.distances))
    return WorstCaseResult(**fields, winner=torch.where(result.success, 0, -1), tried=result.attacked.long())


def _take(total: WorstCaseResult, rows: Tensor, result: AttackResult, place: int) -> WorstCaseResult:
    """The result so far with a further attack on some of the images: its cost, and its examples where they count."""
    add_costs(total, rows, result)
    total.tried[rows] += 1
    fooled, before, after = total.success[rows], total.fooled_rate[rows], result.fooled_rate
    better = result.success | result.usable & ((before <= after) | ~total.usable[rows])
    better = torch.where(fooled, result.success & (before < after), better)  # fooled before: of a random model alone
    total.winner[rows[result.success & better]] = place
    copy_examples(total, rows, result, better)
    violations = list(total.violations)
    for image, kinds, done in zip(rows.tolist(), result.violations, (fooled | result.success).tolist(), strict=True):
        violations[image] = () if done else tuple(dict.fromkeys((*violations[image], *kinds)))
    return replace(total, violations=tuple(violations), errors=(*total.errors, *result.errors))
