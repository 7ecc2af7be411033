"""Foolbox classes in which known issues are fixed (the `@fixed` variants), or which no longer crash."""

# pyright: reportPrivateImportUsage=false

from typing import Any

import eagerpy as ep
from foolbox import attacks
from foolbox.attacks.gradient_descent_base import AdamOptimizer, normalize_lp_norms
from foolbox.devutils import atleast_kd, flatten

_BEYOND = 1.001  # times the radius


class L2AdamIterative(attacks.L2AdamBasicIterativeAttack):
    """L2 Adam iteration that uses Adam. The base class creates the optimiser, but does not use it."""

    def get_optimizer(self, x: ep.Tensor, stepsize: float) -> AdamOptimizer:
        """Return Adam with the parameters given to the constructor."""
        return AdamOptimizer(x, stepsize, self.adam_beta1, self.adam_beta2, self.adam_epsilon)


class L1AdamIterative(attacks.L1AdamBasicIterativeAttack):
    """L1 Adam iteration that uses Adam. The base class creates the optimiser, but does not use it."""

    def get_optimizer(self, x: ep.Tensor, stepsize: float) -> AdamOptimizer:
        """Return Adam with the parameters given to the constructor."""
        return AdamOptimizer(x, stepsize, self.adam_beta1, self.adam_beta2, self.adam_epsilon)


class LinfMomentumIterative(attacks.LinfMomentumIterativeFastGradientMethod):
    """Momentum iteration that accumulates gradients divided by their l1 norm, as in the paper of MI-FGSM.

    The base class accumulates the signs of gradients.
    """

    def normalize(self, gradients: ep.Tensor, **_: Any) -> ep.Tensor:
        """Return the gradients in the form in which they are accumulated."""
        return normalize_lp_norms(gradients, p=1)


class SparseL1Descent(attacks.SparseL1DescentAttack):
    """SLIDE that does not change pixels at 0 or 1 if its step would move them out of [0, 1].

    The base class does this correctly only for untargeted attacks.
    """

    _sign = 1.0

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack, and store whether it is targeted, for `normalize`."""
        self._sign = -1.0 if hasattr(criterion, "target_classes") else 1.0
        return super().run(model, inputs, criterion, **kwargs)

    def normalize(self, gradients: ep.Tensor, **where: Any) -> ep.Tensor:
        """Return the sparse direction of the step."""
        return self._sign * super().normalize(self._sign * gradients, **where)


class L2FMN(attacks.L2FMNAttack):
    """FMN in l2 that projects onto a ball whose radius is larger by 0.1 %, see `L1FMN`."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Return the point of the larger ball that is nearest to `x`."""
        delta = x - x0
        norms = ep.maximum(flatten(delta).norms.l2(axis=-1), 1e-12)
        return x0 + delta * atleast_kd(ep.minimum(1, _BEYOND * epsilon / norms), x.ndim)


class L1FMN(attacks.L1FMNAttack):
    """FMN in l1 that projects onto a ball whose radius is larger by 0.1 %.

    With the exact radius, rounding can make FMN end just before the decision boundary.
    """

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Return the point of the larger ball that is nearest to `x`."""
        return super().project(x, x0, _BEYOND * epsilon)


class L0FMNInRange(attacks.L0FMNAttack):
    """FMN in l0 whose radius stays below the number of components, because the base class crashes otherwise."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Project as the base class does, but with a radius below the number of components."""
        return super().project(x, x0, ep.minimum(epsilon, flatten(x).shape[1] - 1))


class L0FMN(attacks.L0FMNAttack):
    """FMN in l0 that changes as many components as the radius allows. The base class changes one more."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """Keep only as many of the largest changes as the radius allows."""
        return super().project(x, x0, epsilon - 1)


def _clean_where_black(adv_inputs: Any, inputs: Any) -> Any:
    adv, restore = ep.astensor_(adv_inputs)
    clean = ep.astensor(inputs)
    black = atleast_kd((flatten(adv) == 0).all(axis=-1), adv.ndim)
    return restore(ep.where(black, clean, adv))


class CarliniWagner(attacks.L2CarliniWagnerAttack):
    """C&W that returns the clean image if it fails. The base class returns a black image."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack."""
        return _clean_where_black(super().run(model, inputs, criterion, **kwargs), inputs)


class ElasticNet(attacks.EADAttack):
    """EAD that returns the clean image if it fails. The base class returns a black image."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack."""
        return _clean_where_black(super().run(model, inputs, criterion, **kwargs), inputs)


class Pointwise(attacks.PointwiseAttack):
    """Pointwise attack that returns the clean image if no adversarial start is found. The base class crashes."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack on one image."""
        starts = attacks.SaltAndPepperNoiseAttack().run(model, inputs, criterion)
        if bool((ep.astensor(starts) == ep.astensor(inputs)).all()):
            return starts
        return super().run(model, inputs, criterion, starting_points=starts, **kwargs)
