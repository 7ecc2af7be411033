"""L-BFGS attack: minimises the distance plus the cross-entropy of a target class with a quasi-Newton method."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from ...criterion import is_fooled
from .queries import Model, query_logits

# Points (m, d) of images `rows` (m,) -> objective (m,), its gradient (m, d), and whether they are adversarial (m,).
_Objective: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

_PAIRS = 8  # moves that a minimiser remembers
_SUFFICIENT = 1e-4  # proportion of the predicted decrease required to accept a move (Armijo)
_SHORTEST = 1e-6  # largest change of a pixel below which a move ends the round
_GROWTH = 10.0  # of the constant, until one is known on either side


def lbfgs(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    targets: Tensor | None = None,
    steps: int = 50,
    binary_search_steps: int = 10,
    initial_const: float = 1.0,
) -> Tensor:
    """Minimise |r|^2 + c CE(x + r, target) with x + r in [0, 1], for the smallest sufficient c (Szegedy et al. 2014).

    Each image has its own constant c, and each round minimises the objective for one c, starting at the clean image. If
    the first minimum is not adversarial, c is multiplied by ten in each round until a minimum is adversarial. If the
    first minimum is adversarial, c is divided by ten until a minimum is not. Then c is bisected on a logarithmic scale.

    The objective is minimised by a projected quasi-Newton method with limited memory (Kim, Sra and Dhillon 2010).
    L-BFGS is applied to all pixels that can move. A pixel at 0 or 1 cannot move if its step points out of [0, 1]. Each
    step is clipped to [0, 1], and shortened until the objective falls. If no pixel of an image can move, the image is
    not queried again in this round.

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        targets: target classes, shape (n,). If None, the target is the most likely class other than the label, which is
            found with one query. Every misclassified image then counts as adversarial.
        steps: largest number of steps per round. A step costs a forward and a backward pass.
        binary_search_steps: number of rounds.
        initial_const: value of c in the first round.

    Returns:
        The adversarial image found that is nearest to each image in l2, shape (n, C, H, W). The clean image if none was
        found.
    """
    flat, best = inputs.flatten(1), inputs.flatten(1).clone()
    nearest = flat.new_full((len(flat),), torch.inf)
    goal = _likeliest_other(model, inputs, labels) if targets is None else targets
    const = torch.full_like(nearest, initial_const)
    low, high = torch.zeros_like(const), torch.full_like(const, torch.inf)

    def objective(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked = points.detach().view(-1, *inputs.shape[1:]).requires_grad_()
        logits = query_logits(model, asked, rows)
        loss = torch.nn.functional.cross_entropy(logits, goal[rows], reduction="none")
        gradient = torch.autograd.grad(loss.sum(), asked)[0].flatten(1).nan_to_num(0, 0, 0)
        change, weight = points - flat[rows], const[rows]
        hit = is_fooled(logits.detach(), labels[rows], None if targets is None else targets[rows])
        square = change.square().sum(1)
        near = rows[hit & (square < nearest[rows])]
        inside = (hit & (square < nearest[rows])).nonzero()[:, 0]
        best[near], nearest[near] = points[inside], square[inside]
        return square + weight * loss.detach(), 2 * change + weight[:, None] * gradient, hit

    for _ in range(binary_search_steps):
        enough = minimise(objective, flat, steps)
        low, high = low.where(enough, const), const.where(enough, high)
        between = torch.where(low == 0, high / _GROWTH, (low * high).sqrt())
        const = torch.where(high.isinf(), low * _GROWTH, between)
    return best.view_as(inputs)


@torch.no_grad()
def _likeliest_other(model: Model, inputs: Tensor, labels: Tensor) -> Tensor:
    logits = query_logits(model, inputs, torch.arange(len(inputs), device=inputs.device))
    return logits.scatter(1, labels[:, None], -torch.inf).argmax(1)


def minimise(objective: _Objective, start: Tensor, steps: int) -> Tensor:
    """Minimise an objective for each image within [0, 1], by a projected quasi-Newton method.

    Args:
        objective: function that is called with points (m, d) and the indices (m,) of their images. It returns the
            values (m,), the gradients (m, d), and whether the points are adversarial (m,).
        start: starting point of each image, shape (n, d).
        steps: largest number of calls of `objective`. Each call includes all images that still move.

    Returns:
        Whether the last point of each image is adversarial, shape (n,), bool.
    """
    rows = torch.arange(len(start), device=start.device)
    point = start.clone()
    value, gradient, hit = objective(point, rows)
    memory = _Memory(start)
    direction = memory.direction(rows, point, gradient)
    length = torch.ones_like(value)
    for _ in range(steps - 1):
        trial = (point[rows] + length[rows, None] * direction[rows]).clamp(0, 1)
        move = trial - point[rows]
        slope = (gradient[rows] * move).sum(1).clamp(max=0)
        there, uphill, fools = objective(trial, rows)
        down = there <= value[rows] + _SUFFICIENT * slope
        moved, stays = rows[down], rows[~down]
        memory.keep(moved, move[down], uphill[down] - gradient[moved])
        point[moved], value[moved], gradient[moved], hit[moved] = trial[down], there[down], uphill[down], fools[down]
        direction[moved] = memory.direction(moved, point[moved], gradient[moved])
        # The minimum of the parabola through both values with the slope at the start.
        rise = (there[~down] - value[stays] - slope[~down]).clamp(min=1e-30)
        length[moved] = 1
        length[stays] *= (-slope[~down] / (2 * rise)).nan_to_num(0.1).clamp(0.1, 0.5)
        rows = rows[move.abs().amax(1) > _SHORTEST]
        if not len(rows):
            break
    return hit


class _Memory:
    """The memory of L-BFGS: the last steps of each image, and the changes of the gradient over these steps.

    L-BFGS estimates the curvature of the objective from them. Without stored steps, the curvature is 2, which is that
    of the squared distance.
    """

    def __init__(self, start: Tensor):
        self.moves = start.new_zeros(len(start), _PAIRS, start.shape[1])
        self.turns = torch.zeros_like(self.moves)

    def keep(self, rows: Tensor, moves: Tensor, turns: Tensor) -> None:
        """Store steps (m, d) of the images `rows`, and the changes of the gradient. They replace the oldest steps."""
        self.moves[rows] = torch.cat([self.moves[rows, 1:], moves[:, None]], 1)
        self.turns[rows] = torch.cat([self.turns[rows, 1:], turns[:, None]], 1)

    def direction(self, rows: Tensor, point: Tensor, gradient: Tensor) -> Tensor:
        """Return the direction of the next step, shape (m, d): minus the inverse curvature times the gradient.

        Pixels that cannot move have a direction of 0.
        """
        free = ~((point <= 0) & (gradient > 0) | (point >= 1) & (gradient < 0))
        moves, turns = self.moves[rows] * free[:, None], self.turns[rows] * free[:, None]
        bend = (moves * turns).sum(2)  # a pair along which the gradient falls, or that is empty, is skipped
        usable = bend > 1e-8 * turns.square().sum(2)
        weight = (1 / bend.where(usable, 1)).where(usable, 0)[..., None]
        rest, parts = gradient * free, []
        for pair in reversed(range(_PAIRS)):
            part = weight[:, pair] * (moves[:, pair] * rest).sum(1, keepdim=True)
            rest = rest - part * turns[:, pair]
            parts.insert(0, part)
        rest = rest / 2
        for pair, part in enumerate(parts):
            rest = rest + (part - weight[:, pair] * (turns[:, pair] * rest).sum(1, keepdim=True)) * moves[:, pair]
        return -rest
