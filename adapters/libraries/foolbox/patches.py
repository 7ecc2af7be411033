"""Foolbox classes in which one issue is fixed (the `@fixed` variants), and one that returns instead of failing."""

# pyright: reportPrivateImportUsage=false

from typing import Any

import eagerpy as ep
from foolbox import attacks
from foolbox.attacks.gradient_descent_base import AdamOptimizer, normalize_lp_norms
from foolbox.devutils import atleast_kd, flatten

_BEYOND = 1.001  # times the radius


class L2AdamIterative(attacks.L2AdamBasicIterativeAttack):
    """L2 Adam iteration that uses the Adam optimiser. Its base class creates the optimiser but ignores it."""

    def get_optimizer(self, x: ep.Tensor, stepsize: float) -> AdamOptimizer:
        """Return Adam with the parameters given to the constructor."""
        return AdamOptimizer(x, stepsize, self.adam_beta1, self.adam_beta2, self.adam_epsilon)


class L1AdamIterative(attacks.L1AdamBasicIterativeAttack):
    """L1 Adam iteration that uses the Adam optimiser. Its base class creates the optimiser but ignores it."""

    def get_optimizer(self, x: ep.Tensor, stepsize: float) -> AdamOptimizer:
        """Return Adam with the parameters given to the constructor."""
        return AdamOptimizer(x, stepsize, self.adam_beta1, self.adam_beta2, self.adam_epsilon)


class LinfMomentumIterative(attacks.LinfMomentumIterativeFastGradientMethod):
    """Momentum iteration that accumulates the gradient divided by its l1 norm, as in the paper.

    Only the step is a sign.
    """

    def normalize(self, gradients: ep.Tensor, **_: Any) -> ep.Tensor:
        """Return the gradient to accumulate."""
        return normalize_lp_norms(gradients, p=1)


class SparseL1Descent(attacks.SparseL1DescentAttack):
    """SLIDE that skips the pixels that its step would push out of [0, 1], depending on the step's direction."""

    _sign = 1.0

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack; if targeted, descend the gradient."""
        self._sign = -1.0 if hasattr(criterion, "target_classes") else 1.0
        return super().run(model, inputs, criterion, **kwargs)

    def normalize(self, gradients: ep.Tensor, **where: Any) -> ep.Tensor:
        """Return the sparse direction of the step."""
        return self._sign * super().normalize(self._sign * gradients, **where)


class L2FMN(attacks.L2FMNAttack):
    """FMN with projection onto an l2 ball larger by a thousandth, see `L1FMN`."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Return the point of the ball nearest to `x`."""
        delta = x - x0
        norms = ep.maximum(flatten(delta).norms.l2(axis=-1), 1e-12)
        return x0 + delta * atleast_kd(ep.minimum(1, _BEYOND * epsilon / norms), x.ndim)


class L1FMN(attacks.L1FMNAttack):
    """FMN with projection onto a ball larger by a thousandth, because rounding may stop FMN short of the boundary."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Return the point of the larger ball nearest to `x`."""
        return super().project(x, x0, _BEYOND * epsilon)


class L0FMNInRange(attacks.L0FMNAttack):
    """FMN with an l0 radius below the number of components. The base class indexes one component more than exist."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Project to one component more than the radius, as shipped."""
        return super().project(x, x0, ep.minimum(epsilon, flatten(x).shape[1] - 1))


class L0FMN(attacks.L0FMNAttack):
    """FMN that changes as many components as its radius. The base class changes one more."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Keep only as many of the largest changes as the radius allows."""
        return super().project(x, x0, epsilon - 1)


def _clean_where_black(adv_inputs: Any, inputs: Any) -> Any:
    adv, restore = ep.astensor_(adv_inputs)
    clean = ep.astensor(inputs)
    black = atleast_kd((flatten(adv) == 0).all(axis=-1), adv.ndim)
    return restore(ep.where(black, clean, adv))


class CarliniWagner(attacks.L2CarliniWagnerAttack):
    """C&W that returns the clean image on failure, instead of a black one."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack."""
        return _clean_where_black(super().run(model, inputs, criterion, **kwargs), inputs)


class ElasticNet(attacks.EADAttack):
    """EAD that returns the clean image on failure, instead of a black one."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack."""
        return _clean_where_black(super().run(model, inputs, criterion, **kwargs), inputs)


class Pointwise(attacks.PointwiseAttack):
    """Pointwise attack that returns the clean image if its start fails.

    The base class asserts that this never happens.
    """

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack on one image."""
        starts = attacks.SaltAndPepperNoiseAttack().run(model, inputs, criterion)
        if bool((ep.astensor(starts) == ep.astensor(inputs)).all()):
            return starts
        return super().run(model, inputs, criterion, starting_points=starts, **kwargs)
