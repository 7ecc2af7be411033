"""Implementations from SecML-Torch: classes, canonical parameters and known issues.

Only attacks that SecML-Torch implements itself are listed. Its other attacks call Foolbox and adversarial-library,
which davylamp runs directly.
"""

from collections.abc import Mapping
from typing import Any

from ...attack import Implementation

_TARGETED: Mapping[str, Any] = {"targeted": "yes"}
# The step size follows from the radius.
REQUIRED: Mapping[str, Any] = {
    "steps": 10,
    "learning_rate": 1.0,
    "random_start": False,
    "step_size": "2.5 epsilon / steps",
}
_PGD = {"steps": "num_steps", "step_size": "step_size", "random_start": "random_start"}
_FMN = {"steps": "num_steps", "learning_rate": "max_step_size", "gamma": "gamma"}
_DDN = {"steps": "num_steps", "initial_epsilon": "eps_init"}

_ON_THE_CPU = "gets images on the CPU even if the model is on a GPU, because it mixes tensors of both and crashes"
_EACH_IMAGE = "l1: selects the steepest component in each image, instead of among all images together"

ROWS: tuple[Implementation, ...] = (
    Implementation(
        "pgd",
        "secml-torch",
        {"linf": ".native_attacks:PGDNative", "l2": ".native_attacks:PGDNative", "l1": ".patches:PerImagePGD"},
        _PGD,
        **_TARGETED,
        random=("torch",),
        repairs=(_ON_THE_CPU, _EACH_IMAGE),
        findings=("last-step-unseen", "starts-from-the-image"),
    ),
    Implementation(
        "pgd",
        "secml-torch",
        dict.fromkeys(("linf", "l2", "l1"), ".patches:PGD"),
        _PGD,
        variant="fixed",
        **_TARGETED,
        random=("torch",),
        repairs=(_ON_THE_CPU, _EACH_IMAGE),
    ),
    Implementation(
        "fmn",
        "secml-torch",
        dict.fromkeys(("linf", "l2", "l1", "l0"), ".native_attacks:FMNNative"),
        _FMN,
        **_TARGETED,
        failure="input",
        repairs=(_ON_THE_CPU,),
        findings=("no-first-radius",),
    ),
    Implementation(
        "ddn",
        "secml-torch",
        {"l2": ".native_attacks:DDNNative"},
        _DDN,
        **_TARGETED,
        failure="input",
        repairs=(_ON_THE_CPU,),
        findings=("gamma-overwritten", "small-first-radius"),
    ),
    Implementation(
        "ddn",
        "secml-torch",
        {"l2": ".patches:DDN"},
        {**_DDN, "gamma": "gamma"},
        variant="fixed",
        **_TARGETED,
        failure="input",
        repairs=(_ON_THE_CPU,),
        findings=("small-first-radius",),
    ),
)
