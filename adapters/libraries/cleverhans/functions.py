"""The attacks of CleverHans on PyTorch models, each of a module of its name.

Imported only when a row runs, so listing the catalogue loads no library.
"""

from cleverhans.torch.attacks.carlini_wagner_l2 import carlini_wagner_l2
from cleverhans.torch.attacks.fast_gradient_method import fast_gradient_method
from cleverhans.torch.attacks.hop_skip_jump_attack import hop_skip_jump_attack
from cleverhans.torch.attacks.noise import noise
from cleverhans.torch.attacks.projected_gradient_descent import projected_gradient_descent
from cleverhans.torch.attacks.semantic import semantic
from cleverhans.torch.attacks.sparse_l1_descent import sparse_l1_descent
from cleverhans.torch.attacks.spsa import spsa

__all__ = [
    "carlini_wagner_l2",
    "fast_gradient_method",
    "hop_skip_jump_attack",
    "noise",
    "projected_gradient_descent",
    "semantic",
    "sparse_l1_descent",
    "spsa",
]
