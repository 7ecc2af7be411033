"""Presets: the settings of published evaluations, such as attacks, threat models, parameters and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...adapters.defaults import Norm
from ...errors import UnknownName
from ..cell_defaults import ALL_MEASURES
from .config import AttackChoice, Config

SMALL = 3 * 64 * 64  # components of an image that separate CIFAR-like from ImageNet-like sizes


@dataclass(frozen=True)
class Preset:
    """The settings of a published evaluation.

    Args:
        config: settings of the evaluation, with one implementation for each attack of the paper.
        metrics: symbols of the metrics that the paper reports.
        source: the paper, with the sections that describe the settings.
        missing: attacks of the paper that no library implements.
        readings: notes on differences from the paper, and on values that the paper does not give.
        findings: reasons why the preset uses an implementation with a known issue, by name of the known issue.
        radii: radii of attacks for which the config has no radius, by norm. The first radius of each pair is for images
            of up to `SMALL` components, the second radius for larger images.
    """

    config: Config
    metrics: tuple[str, ...]
    source: str
    missing: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()
    findings: Mapping[str, str] = field(default_factory=dict)
    radii: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def radius(self, norm: str, components: int) -> float | None:
        """Return the radius for attacks without a radius; None if the preset has no radius for the norm."""
        return self.radii[norm][components > SMALL] if norm in self.radii else None

    def lines(self) -> list[str]:
        """Return notes for readers of the results: source, differences from the paper, and missing attacks."""
        lines = [self.source, *self.readings]
        return [*lines, f"not available in any library: {', '.join(self.missing)}"] if self.missing else lines


def find_preset(name: str) -> Preset:
    """Return the preset with a given name.

    Raises:
        UnknownName: if the preset does not exist.
    """
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    return PRESETS[name]


def describe_preset(name: str) -> list[str]:
    """Return the notes of a preset for readers of the results; empty if `name` is not the name of a preset."""
    return [f"preset {name}: {line}" for line in PRESETS[name].lines()] if name in PRESETS else []


def preset_radius(name: str, norm: str, components: int) -> float | None:
    """Return the radius of a preset for attacks without a radius.

    Returns:
        The radius. None if there is no preset, or if the preset has no radius for the norm.
    """
    return PRESETS[name].radius(norm, components) if name in PRESETS else None


def _choice(attack: str, norm: Norm, epsilon: float | None = None, target: str = "", **parameters: Any) -> AttackChoice:
    return AttackChoice(attack, norm, epsilon, target, parameters)


_BLACK = {"black-on-failure": "it returns black images on failure; these count as invalid"}
_SPSA = {
    "targets-ignored": "it is run untargeted",
    "one-short-step": "it is run with the number of steps of the preset instead of its default, one",
}
_MATCHED = "parameters that the paper does not give have the values matched between the libraries"

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
    AttackChoice(attack, "linf", epsilon, "", {**_ITERATED, "step_size": "2 epsilon / steps", **extra})
    for attack, extra in (
        ("torchattacks:mi-fgsm", {}),
        ("torchattacks:vmi-fgsm", {"samples": 20}),
        ("torchattacks:ni-fgsm", {}),
        ("davylamp:si-fgsm", {"scales": 3}),
    )
    for epsilon in (_SMALL, _LARGE)
)

_CANARY = Preset(
    Config(
        preset="canary",
        attacks=(
            _choice("foolbox:fgsm", "linf", _LARGE),
            _choice("at-saturation(art:jsma)", "l0", target="random", theta=0.3, max_queries=4000),
            _choice("foolbox:deepfool", "l2", steps=100, overshoot=0.02, candidates=20),
            _choice("foolbox:bim", "linf", _SMALL, **_ITERATED),
            _choice("foolbox:cw", "l2", steps=1000, binary_search_steps=10, initial_const=0.01, learning_rate=0.01),
            _choice("foolbox:pgd", "linf", _SMALL, random_start=True, **_ITERATED),
            _choice("foolbox:ead-en", "l1", **_EAD),
            *_TRANSFERABLE,
            _choice("davylamp:advgan", "linf", 0.3),
            _choice("davylamp:tremba", "linf", 4 / 255, max_queries=_QUERIES),
            _choice("davylamp:ssah", "unrestricted", steps=400, learning_rate=0.001, low_frequency=0.1),
            _choice("davylamp:lsa", "l0", steps=80, max_queries=_QUERIES),
            _choice("foolbox:boundary", "l2", steps=10_000, max_queries=_QUERIES),
            _choice("foolbox:spatial", "unrestricted", max_translation=3, max_rotation=30, translations=5, rotations=5),
            _choice("torchattacks:spsa", "linf", _LARGE, steps=100, samples=100, max_queries=_QUERIES),
            _choice("foolbox:hopskipjump", "linf", max_queries=200),  # as Table 5 counts; the program says linf
            _choice("foolbox:genattack", "linf", _LARGE, target="random", max_queries=_QUERIES),
        ),
        transfer="simple",
        limit=1000,
        measures=ALL_MEASURES,
    ),
    (
        *("MR", "AIAC", "ARTC", "ACAMC_A", "ACAMC_T", "OTR", "CTC", "QNC_F", "QNC_B"),
        *("APCR", "AED", "AMD", "FDL", "FDH", "ADMS", "ALMS"),
    ),
    "CANARY (Sun et al. 2023), 5.1, Tables 4 and 5: radii, budgets; parameters from its authors' Canary_Master",
    (),
    (
        "AdvGAN and TREMBA are fitted on the attacked model and on the evaluation images, as in CANARY's program. "
        "They are therefore white-box, although CANARY's tables list them as black-box. --fit-data selects other "
        "images, and `surrogate` (TOML) a different model",
        "SI-FGSM averages the gradients of its copies, as in its paper; CANARY's program averages the logits",
        "SSAH uses the input of every model's last layer as features, and the images of a batch as negatives; "
        "CANARY runs 20 to 150 images together",
        "LSA follows its paper; CANARY's program changes all pixels except the five least important, most to black",
        "the paper gives no limit for JSMA, so it is run at its saturation radius (3.2.1), with 4000 passes at each "
        "radius; black-box attacks are also run on 1000 images, but on 600 in the paper",
    ),
    {
        **_BLACK,
        **_SPSA,
        "largest-gradients": "the other library with JSMA compares all pairs of components, which needs too much "
        "memory",
        "nan-momentum": "it affects only images with a gradient of exactly zero; no other library has all three "
        "attacks",
        "fitness-logit": "no other library has GenAttack",
        "negatives-of-the-batch": "it is a property of SSAH itself",
        "untrained-alone": "it is fitted first",
    },
)

_ROBIC = Preset(
    Config(
        preset="robic",
        attacks=(
            AttackChoice("best(foolbox:pgd)", "l2", None, "", {"steps": 40}),
            _choice("davylamp:bp", "l2", steps=100, quantise_after=True),
            _choice("foolbox:cw", "l2", steps=100),
            _choice("davylamp:surfree", "l2", max_queries=5000, quantise=True),
            _choice("davylamp:rays", "l2", max_queries=5000),
            _choice("art:geoda", "l2", max_queries=5000),
            _choice("davylamp:qeba", "l2", max_queries=5000),
        ),
        eight_bit=True,
        limit=1000,
    ),
    ("MR", "RMSD", "PSNR", "D_half", "QNC_F", "QNC_B", "R8"),
    "RoBIC (Maho et al. 2021), section 5: best effort, 8-bit images, 5000 queries",
    (),
    (
        "BP's results are rounded to 8 bits by the method that the paper cites (Bonnet et al. 2020); those of PGD and "
        "CW are rounded to the nearest grey level, which may undo a success",
        "QEBA draws directions from small, enlarged images (variant S); the paper does not name its variant",
        _MATCHED,
    ),
    _BLACK,
)

_INCEPTION = ("demo:efficientnet-lite2",)  # in the place of the Inception-V3 that the paper transfers PGD from
_L1, _L2, _LINF = 12.0, 0.5, 0.03  # AISafety IV.A: CIFAR-10 and SVHN
_AISAFETY = Preset(
    Config(
        preset="aisafety",
        attacks=(
            _choice("foolbox:fgsm", "linf", _LINF),
            _choice("foolbox:pgd", "l1", _L1),
            _choice("foolbox:pgd", "l2", _L2),
            _choice("foolbox:pgd", "linf", _LINF),
            _choice("foolbox:cw", "l2"),
            AttackChoice("foolbox:pgd", "l1", _L1, surrogate=_INCEPTION),
            AttackChoice("foolbox:pgd", "l2", _L2, surrogate=_INCEPTION),
            AttackChoice("foolbox:pgd", "linf", _LINF, surrogate=_INCEPTION),
            _choice("davylamp:nattack", "linf", _LINF),
            _choice("torchattacks:spsa", "linf", _LINF),
            _choice("foolbox:boundary", "l2", max_queries=5000),
        ),
        data="foolbox:cifar10",
        limit=1000,
        measures=ALL_MEASURES,
    ),
    ("CA", "AAW", "AAB", "ACAC", "ACTC", "NTE", "ALD", "ASS", "PSD"),
    "AISafety (Liu et al. 2021), IV.A and Tables II to IV: radii",
    (),
    (
        "PGD examples are transferred from demo:efficientnet-lite2 (ImageNet); the paper uses an Inception-V3. For "
        "models with other classes, such as CIFAR-10's, choose a different surrogate with --surrogate MODEL",
        "for l1, PGD changes all components in each step, as in Foolbox",
        f"{_MATCHED}; the boundary attack gets 5000 queries",
    ),
    {**_BLACK, **_SPSA},
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
            _choice("art:uap@fixed", "linf", 10 / 255),
            _choice("davylamp:gd-uap", "linf", 10 / 255),
        ),
        limit=1000,
    ),
    ("MR", "FR@1", "FR@5", "FR@10", "FR@20", "FR@50", "FR@100", "FR_AUC", "QI_Wup", "QI_Vis"),
    "Fooling beyond flipping the label (Mopuri et al. 2020), section 3: radius, binary search steps",
    (),
    (
        "I-FGSM-LL is BIM towards the least likely class; the untargeted BIM is added",
        "UAP is the fixed variant: as shipped, it looks up the logits of wrong classes; it is fitted on the "
        "evaluation images unless --fit-data names others",
        _MATCHED,
    ),
    _BLACK,
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
    "HikDeep-Sec (Zhang et al. 2023), section 6.1: radii, 5 steps of 0.004",
    (),
    ("the step of 0.004 is larger than the radius of 1/255, so each step is clipped to the ball",),
)

_AUTOATTACK = Preset(
    Config(
        preset="autoattack",
        attacks=tuple(_choice("torchattacks:autoattack@fixed", norm) for norm in ("linf", "l2")),
        limit=1000,
    ),
    ("CA", "AAW", "MR", "AMD", "AED", "QNC_F", "QNC_B"),
    "AutoAttack (Croce and Hein 2020), its standard version, with the radii of RobustBench: linf 8/255 and l2 0.5 on "
    "images of up to 64 x 64 (CIFAR), linf 4/255 and l2 3.0 on larger ones (ImageNet)",
    (),
    (
        (
            "run as the fixed variant with 100 steps; the library's version makes 10 steps and uses the first image's "
            "step size for all"
        ),
    ),
    {"first-step-size": "corrected in the fixed variant: APGD-T gets one image at a time"},
    {"linf": (8 / 255, 4 / 255), "l2": (0.5, 3.0)},
)

PRESETS: Mapping[str, Preset] = {
    "aisafety": _AISAFETY,
    "autoattack": _AUTOATTACK,
    "canary": _CANARY,
    "fooling": _FOOLING,
    "hikdeepsec": _HIKDEEPSEC,
    "robic": _ROBIC,
}
