"""Foolbox classes with one defect mended each (the `@repaired` rows), and one that returns where it would assert."""

# pyright: reportPrivateImportUsage=false

from typing import Any

import eagerpy as ep
from foolbox import attacks
from foolbox.attacks.gradient_descent_base import AdamOptimizer, normalize_lp_norms
from foolbox.devutils import atleast_kd, flatten

_BEYOND = 1.001  # times the radius


class L2AdamIterative(attacks.L2AdamBasicIterativeAttack):
    """Steps with the Adam that its base sets up and never uses."""

    def get_optimizer(self, x: ep.Tensor, stepsize: float) -> AdamOptimizer:
        """Adam with the parameters given to the constructor."""
        return AdamOptimizer(x, stepsize, self.adam_beta1, self.adam_beta2, self.adam_epsilon)


class L1AdamIterative(attacks.L1AdamBasicIterativeAttack):
    """Steps with the Adam that its base sets up and never uses."""

    def get_optimizer(self, x: ep.Tensor, stepsize: float) -> AdamOptimizer:
        """Adam with the parameters given to the constructor."""
        return AdamOptimizer(x, stepsize, self.adam_beta1, self.adam_beta2, self.adam_epsilon)


class LinfMomentumIterative(attacks.LinfMomentumIterativeFastGradientMethod):
    """Accumulates the gradient over its l1 norm, as in the paper; only the step is a sign."""

    def normalize(self, gradients: ep.Tensor, **_: Any) -> ep.Tensor:
        """What is accumulated."""
        return normalize_lp_norms(gradients, p=1)


class SparseL1Descent(attacks.SparseL1DescentAttack):
    """Leaves alone the pixels that its step would push out of the box, in whichever direction the step is."""

    _sign = 1.0

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack; a targeted one goes down the gradient."""
        self._sign = -1.0 if hasattr(criterion, "target_classes") else 1.0
        return super().run(model, inputs, criterion, **kwargs)

    def normalize(self, gradients: ep.Tensor, **where: Any) -> ep.Tensor:
        """The sparse direction, as the step will be."""
        return self._sign * super().normalize(self._sign * gradients, **where)


class L2FMN(attacks.L2FMNAttack):
    """Projects onto the l2 ball, and onto one a thousandth larger: see `L1FMN`."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """The point of the ball nearest to `x`."""
        delta = x - x0
        norms = ep.maximum(flatten(delta).norms.l2(axis=-1), 1e-12)
        return x0 + delta * atleast_kd(ep.minimum(1, _BEYOND * epsilon / norms), x.ndim)


class L1FMN(attacks.L1FMNAttack):
    """Projects onto a ball a thousandth larger: it then crosses a boundary that rounding may leave it short of."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """The point of the larger ball nearest to `x`."""
        return super().project(x, x0, _BEYOND * epsilon)


class L0FMNInRange(attacks.L0FMNAttack):
    """Stops its radius one short of all components, where its base looks up one more than there are."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """One component more than the radius, as shipped."""
        return super().project(x, x0, ep.minimum(epsilon, flatten(x).shape[1] - 1))


class L0FMN(attacks.L0FMNAttack):
    """Keeps as many components as its radius says; its base keeps one more."""

    def project(self, x: ep.Tensor, x0: ep.Tensor, epsilon: ep.Tensor) -> ep.Tensor:
        """The largest changes only."""
        return super().project(x, x0, epsilon - 1)


def _clean_where_black(adv_inputs: Any, inputs: Any) -> Any:
    adv, restore = ep.astensor_(adv_inputs)
    clean = ep.astensor(inputs)
    black = atleast_kd((flatten(adv) == 0).all(axis=-1), adv.ndim)
    return restore(ep.where(black, clean, adv))


class CarliniWagner(attacks.L2CarliniWagnerAttack):
    """Returns the clean image where it fails, instead of a black one."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack."""
        return _clean_where_black(super().run(model, inputs, criterion, **kwargs), inputs)


class ElasticNet(attacks.EADAttack):
    """Returns the clean image where it fails, instead of a black one."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack."""
        return _clean_where_black(super().run(model, inputs, criterion, **kwargs), inputs)


class Pointwise(attacks.PointwiseAttack):
    """Returns the clean image where its salt-and-pepper start fails; its base asserts that it never does."""

    def run(self, model: Any, inputs: Any, criterion: Any, **kwargs: Any) -> Any:
        """Run the attack on one image."""
        starts = attacks.SaltAndPepperNoiseAttack().run(model, inputs, criterion)
        if bool((ep.astensor(starts) == ep.astensor(inputs)).all()):
            return starts
        return super().run(model, inputs, criterion, starting_points=starts, **kwargs)
