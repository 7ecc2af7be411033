"""Attacks one after the other on the same images: none is made on an image that one before it has fooled.

Of a model that draws random numbers an image is done when all of its draws are fooled: a later attack may fool more.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ...adapters import AttackResult
from ...adapters.result import SURROGATE_PASSES
from ..cell import Cell

_OF_AN_EXAMPLE = ("adv_inputs", "adv_logits", "success", "success_8bit", "draws_fooled")
_SPENT = ("forwards", "backwards", *SURROGATE_PASSES)


@dataclass(frozen=True, kw_only=True)
class InTurnResult(AttackResult):
    """What attacks came to that ran one after the other, and all that they cost.

    `winner` is the place of the attack whose example fools each image, (N,) int64, -1 where none did; `tried` how many
    ran on it, (N,) int64: those behind the winner did not, unless the model draws random numbers, and on an image that
    it gets wrong none did.
    """

    winner: Tensor
    tried: Tensor


class RunOne(Protocol):
    """Runs one of the attacks on the images in some rows, whose clean logits may be known."""

    def __call__(
        self, member: Cell, rows: Tensor, logits: Tensor | None, progress: Callable[[int], object]
    ) -> AttackResult:
        """What the attack came to on those images."""
        ...


def attack_in_turn(
    cell: Cell,
    run: RunOne,
    rows: Tensor,
    logits: Tensor | None,
    progress: Callable[[int], object] | None = None,
) -> InTurnResult:
    """Run the attacks of a worst case in their order, each on the images that none before it has fooled.

    An image is fooled if one of them fools it by the rules; of a random model the example counts that fools most of its
    draws. What all of them leave is as suspect as each of its runs:
    a violation in one of them is one of the whole, and the image does not count as robust. Its example is that of the
    last run that proves something.

    Args:
        cell: a worst case.
        run: what runs one of its attacks.
        rows: of all images, shape (N,).
        logits: of the clean images, shape (N, K), where they are known.
        progress: called with the number of images that no attack is left for; its method `asked`, if it has one, with
            the passes just made.

    Raises:
        DavylampError: whatever one of the attacks raises: what it would have left is then not known.
    """
    reported, first, *others = _Passes(progress), *cell.members
    total = _begin(cell, run(first, rows, logits, reported))
    settled = 0
    for member in (*others, None):
        left = (total.attacked & (total.fooled_share < 1)).nonzero()[:, 0]
        if member is None or not len(left):
            break
        reported.report(len(rows) - len(left) - settled)
        settled = len(rows) - len(left)
        total = _take(total, left, run(member, left, total.logits[left], reported), cell.members.index(member))
    reported.report(len(rows) - settled)
    return total


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


def _begin(cell: Cell, result: AttackResult) -> InTurnResult:
    """The result so far: that of the first attack, in tensors that can be written to."""
    fields: dict[str, Any] = {
        name: value.clone() if isinstance(value, Tensor) else value for name, value in vars(result).items()
    }
    fields |= {"implementation": cell.attack, "parameters": cell.parameters, "curves": None}
    fields["distances"] = type(result.distances)(*(each.clone() for each in result.distances))
    winner = torch.where(result.success, 0, -1)
    return InTurnResult(**fields, winner=winner, tried=result.attacked.long())


def _take(total: InTurnResult, rows: Tensor, result: AttackResult, place: int) -> InTurnResult:
    """The result so far with a further attack on some of the images: its cost, and its examples where they count."""
    for name in _SPENT:
        if (spent := getattr(total, name)) is not None:
            spent[rows] += getattr(result, name)
    total.seconds[rows.cpu()] += result.seconds
    total.tried[rows] += 1
    fooled, before, after = total.success[rows], total.fooled_share[rows], result.fooled_share
    better = result.success | result.usable & ((before <= after) | ~total.usable[rows])
    better = torch.where(fooled, result.success & (before < after), better)  # fooled before: of a random model alone
    total.winner[rows[result.success & better]] = place
    for name in _OF_AN_EXAMPLE:
        if (kept := getattr(total, name)) is not None:
            kept[rows[better]] = getattr(result, name)[better]
    for kept, new in zip(total.distances, result.distances, strict=True):
        kept[rows[better]] = new[better]
    violations = list(total.violations)
    for image, kinds, done in zip(rows.tolist(), result.violations, (fooled | result.success).tolist(), strict=True):
        violations[image] = () if done else tuple(dict.fromkeys((*violations[image], *kinds)))
    return replace(total, violations=tuple(violations), errors=(*total.errors, *result.errors))
