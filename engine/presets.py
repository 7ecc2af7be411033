"""The settings of the papers: their attacks, threat models, parameters and metrics, as far as a library has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..adapters.attack import Norm
from ..errors import UnknownName
from .config import AttackChoice, Config


@dataclass(frozen=True)
class Preset:
    """A paper's setting.

    Args:
        config: what it evaluates; one implementation for each attack, as the paper has it.
        metrics: symbols of the metrics that it reports.
        source: the paper and the place in it.
        missing: attacks of the paper that no library here has.
    """

    config: Config
    metrics: tuple[str, ...]
    source: str
    missing: tuple[str, ...] = ()


def find_preset(name: str) -> Preset:
    """The preset of a name.

    Raises:
        UnknownName: if there is none.
    """
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    return PRESETS[name]


def _choice(attack: str, norm: Norm, epsilon: float | None = None, target: str = "", **parameters: Any) -> AttackChoice:
    return AttackChoice(attack, norm, epsilon, target, parameters)


_QUERIES = 10_000  # CANARY 5.1: of a black-box attack, per image
_SMALL, _LARGE = 1 / 255, 16 / 255  # CANARY 5.1
_EAD = {  # two forward passes and one backward a step: the 10 000 and 5000 of Table 5
    "steps": 1000,
    "binary_search_steps": 5,
    "initial_const": 0.001,
    "learning_rate": 0.02,
    "regularization": 0.01,
}
_ITERATED = {"steps": 100, "step_size": "2.5 epsilon / steps"}
_TRANSFERABLE = tuple(
    AttackChoice(
        f"torchattacks:{attack}", "linf", epsilon, "", {**_ITERATED, "step_size": "2 epsilon / steps", **extra}
    )
    for attack, extra in (
        ("mi-fgsm", {}),
        ("vmi-fgsm", {"samples": 20}),
        ("ni-fgsm", {}),
        ("si-ni-fgsm", {"scales": 3}),
    )
    for epsilon in (_SMALL, _LARGE)
)

_CANARY = Preset(
    Config(
        preset="canary",
        attacks=(
            _choice("foolbox:fgsm", "linf", _LARGE),
            _choice("art:jsma", "l0", target="random", theta=0.3, max_queries=4000),
            _choice("foolbox:deepfool", "l2", steps=100, overshoot=0.02, candidates=20),
            _choice("foolbox:bim", "linf", _SMALL, **_ITERATED),
            _choice("foolbox:cw", "l2", steps=1000, binary_search_steps=10, initial_const=0.01, learning_rate=0.01),
            _choice("foolbox:pgd", "linf", _SMALL, random_start=True, **_ITERATED),
            _choice("foolbox:ead-en", "l1", **_EAD),
            *_TRANSFERABLE,
            _choice("foolbox:boundary", "l2", steps=10_000, max_queries=_QUERIES),
            _choice("foolbox:spatial", "unrestricted", max_translation=3, max_rotation=30, translations=5, rotations=5),
            _choice("torchattacks:spsa", "linf", _LARGE, steps=100, samples=100, max_queries=_QUERIES),
            _choice("foolbox:hopskipjump", "linf", max_queries=200),  # as Table 5 counts; the program says linf
            _choice("foolbox:genattack", "linf", _LARGE, target="random", max_queries=_QUERIES),
        ),
        transfer="simple",
        limit=1000,
    ),
    (
        *("MR", "AIAC", "ARTC", "ACAMC_A", "ACAMC_T", "OTR", "CTC", "QNC_F", "QNC_B"),
        *("APCR", "AED", "AMD", "FDL", "FDH", "ADMS", "ALMS"),
    ),
    "CANARY (Sun et al. 2023), 5.1, Tables 4 and 5: radii, budgets; parameters from its authors' Canary_Master",
    ("SSAH", "AdvGAN", "LSA", "TREMBA"),
)

_ROBIC = Preset(
    Config(
        preset="robic",
        attacks=(
            AttackChoice("best(foolbox:pgd)", "l2", None, "", {"steps": 40}),
            _choice("foolbox:cw", "l2", steps=100),
            _choice("art:geoda", "l2", max_queries=5000),
            _choice("foolbox:hopskipjump", "l2", max_queries=5000),
        ),
        pixels=True,
        limit=1000,
    ),
    ("MR", "RMSD", "PSNR", "D_half", "QNC_F", "QNC_B", "R8"),
    "RoBIC (Maho et al. 2021), section 5: best effort, 8-bit images, 5000 queries",
    ("SurFree", "RayS", "QEBA", "BP"),
)

_L1, _L2, _LINF = 12.0, 0.5, 0.03  # AISafety V.A: CIFAR-10 and SVHN
_AISAFETY = Preset(
    Config(
        preset="aisafety",
        attacks=(
            _choice("foolbox:fgsm", "linf", _LINF),
            _choice("art:pgd", "l1", _L1),
            _choice("foolbox:pgd", "l2", _L2),
            _choice("foolbox:pgd", "linf", _LINF),
            _choice("foolbox:cw", "l2"),
            _choice("torchattacks:spsa", "linf", _LINF),
            _choice("foolbox:boundary", "l2", max_queries=5000),
        ),
        data="foolbox:cifar10",
        limit=1000,
    ),
    ("CA", "AAW", "AAB", "ACAC", "ACTC", "NTE", "ALD", "ASS", "PSD"),
    "AISafety (Liu et al. 2021), V.A and Tables II to IV; PGD's steps are matched, the paper gives none",
    ("NATTACK",),
)

_FOOLING = Preset(
    Config(
        preset="fooling",
        attacks=(
            _choice("foolbox:fgsm", "linf", 10 / 255),
            _choice("foolbox:bim", "linf", 10 / 255),
            _choice("torchattacks:bim", "linf", 10 / 255, target="least-likely"),
            _choice("foolbox:pgd", "linf", 10 / 255),
            _choice("foolbox:deepfool", "l2"),
            _choice("foolbox:cw", "l2", binary_search_steps=15),
            _choice("art:uap", "linf", 10 / 255),
        ),
        limit=1000,
    ),
    ("MR", "FR@1", "FR@5", "FR@10", "FR@20", "FR@50", "FR@100", "FR_AUC", "QI_Wup", "QI_Vis"),
    "Fooling beyond flipping the label (Mopuri et al. 2020), section 4: radius, binary search steps",
    ("GD-UAP",),
)

_HIKDEEPSEC = Preset(
    Config(
        preset="hikdeepsec",
        attacks=tuple(
            _choice(f"foolbox:{attack}", "linf", level / 255, **parameters)
            for level in (1, 2, 3)
            for attack, parameters in (
                ("fgsm", {}),
                ("pgd", {"steps": 5, "step_size": 0.004, "random_start": True}),
                ("bim", {"steps": 5, "step_size": 0.004}),
            )
        ),
        data="foolbox:cifar10",
        limit=1000,
    ),
    ("CA", "AAW", "CAV", "CRR", "CSR", "CCV", "COS"),
    "HikDeep-Sec (Zhang et al. 2023), section 5: radii, 5 steps of 0.004",
)

_AUTOATTACK = Preset(
    Config(
        preset="autoattack",
        attacks=(_choice("torchattacks:autoattack", "linf"), _choice("torchattacks:autoattack", "l2")),
        limit=1000,
    ),
    ("CA", "AAW", "MR", "AMD", "AED", "QNC_F", "QNC_B"),
    "AutoAttack (Croce and Hein 2020), its standard version; radii customary for the size of the images",
)

PRESETS: Mapping[str, Preset] = {
    "aisafety": _AISAFETY,
    "autoattack": _AUTOATTACK,
    "canary": _CANARY,
    "fooling": _FOOLING,
    "hikdeepsec": _HIKDEEPSEC,
    "robic": _ROBIC,
}
