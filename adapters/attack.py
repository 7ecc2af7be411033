"""Types that describe an attack, its implementations in the libraries, and its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..deprecation import warn_replaced

if TYPE_CHECKING:
    from .threat_model import ThreatModel

Kind = Literal["fixed-budget", "minimum-norm"]
Knowledge = Literal["white-box", "score-based", "decision-based"]
Access = Literal["white-box", "score-based", "decision-based", "transfer"]  # "transfer": to a surrogate alone
Status = Literal["works", "patched", "broken"]


class NoStart(Exception):
    """Raised by a patched attack that needs an adversarial starting image and has not found one."""


@dataclass(frozen=True)
class Parameter:
    """A canonical parameter: a parameter name that has the same type, range and meaning in every library.

    Attributes:
        type: type of the value.
        low: smallest value.
        high: largest value.
        meaning: description for help texts and error messages.
        useless: a value from `low` to `high` that is refused, because with this value the attack would not change the
            images. None if there is no such value.
    """

    type: type
    low: float
    high: float
    meaning: str
    useless: float | None = None


@dataclass(frozen=True)
class Attack:
    """A canonical attack, such as PGD, independent of any library.

    Attributes:
        name: name in davylamp, such as "pgd".
        title: name for display.
        kind: whether the attack has a fixed radius, or searches for the smallest perturbation.
        knowledge: attacker knowledge that the attack needs.
        source: the publication.
        matched: parameters that `compare` passes to every library unless the user sets them. The `step_size` may be
            relative to the radius, as in "2 epsilon" or "2.5 epsilon / steps" (Madry et al. 2018).
    """

    name: str
    title: str
    kind: Kind
    knowledge: Knowledge
    source: str
    matched: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Implementation:
    """One library's version of an attack, named `library:attack` or `library:attack@variant`.

    Args:
        attack: name of the canonical attack. For a user's attack, the name in the user's code.
        library: name of the library (`Library.name`). For a user's attack, its file.
        classes: attack class "module:Class" for each norm. A leading dot refers to the package of the library's
            definition.
        params: the library's parameter name for each canonical parameter. If `seed`, `num_classes` or `starting_points`
            are among the canonical parameters, `run_attack` supplies their values.
        fixed: arguments that are always passed to the class, by the library's names.
        variant: "fixed" if davylamp has changed the library's algorithm. Otherwise "".
        targeted: "no", "yes", or "only". With "only" and an untargeted threat model, the target is the class in
            `aims_at`.
        aims_at: target rule of a targeted-only implementation if no target is given: "least-likely" or "second-likely".
        random: random generators that must be seeded: "python", "numpy" or "torch". Empty for a deterministic attack.
        alone: whether the library is called with one image at a time. This is necessary if the result for an image
            depends on the other images of the batch.
        order: how the rows of a query are assigned to the images of the batch. "kept": row i belongs to image i. If
            there are more rows than images, the batch is repeated. "content": the library shuffles or shrinks the
            batch, so each row is assigned to the nearest image.
        universal: whether the attack makes one perturbation for all images of a call. The images of a call are then
            never split into batches. A queried row that is equally near to two images is assigned to the second.
        fit: "module:function" that fits the attack. The function has the arguments of a driver, and returns tensors by
            name. Empty for an attack that is not fitted.
        apply: "module:function" that makes examples from the fitted tensors, with the arguments (fitted tensors,
            images, threat model). If empty, the fitted tensor "perturbation" is added to the images. If the attack
            queries the model with the fitted tensors, the function returns the starting images of the attack.
        learned: the library's argument name for the fitted tensors, if the attack queries the model with them. The
            attack is then run with this argument, instead of calling `apply` only.
        searches: canonical parameters that are used after the fit and do not affect the fitted tensors.
        data_free: whether the fit depends only on the model and on the shape of the images.
        reads_layers: whether the attack reads or changes layers inside the model. The model must then be in the same
            process as the attack.
        probabilities: whether the attack expects softmax outputs instead of logits.
        min_classes: smallest number of classes for which the attack's loss is defined.
        failure: image that the library returns if the attack fails: "input" for the clean image, or "last" for the
            last iterate.
        begins_at: the library's argument name for adversarial starting images, one per image, from which the attack
            starts instead of the clean images. Empty if the library has no such argument.
        per_image_radii: whether the class accepts a tensor with one radius per image. Even then, a random start in the
            ball needs a single radius.
        within: "module:function" of a context manager that is active during each library call.
        repairs: descriptions of compatibility patches without which the implementation would not run.
        findings: ids of known issues of the library's algorithm (`Library.findings`). davylamp does not correct them.
        broken: reason why the implementation cannot run with current dependencies. Empty if it can run.
        described: the canonical attack, if it is not in the catalogue. This is the case for a user's attack, and for an
            attack of a library that is not installed. Otherwise None.
        given: the user's attack. None for an implementation of a library.
        more: parameters of this implementation that are not canonical parameters.
        says_norm: whether the attack declares its norms. If not, the user must give a norm.
        assumed: assumptions that davylamp makes about a user's attack, one sentence each.
        canonical: name of the canonical attack that a user's attack implements, as declared by its author. Empty if
            not declared.
    """

    attack: str
    library: str
    classes: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    targeted: Literal["no", "yes", "only"] = "no"
    aims_at: Literal["least-likely", "second-likely"] = "second-likely"
    random: tuple[str, ...] = ()
    alone: bool = False
    order: Literal["kept", "content"] = "kept"
    universal: bool = False
    fit: str = ""
    apply: str = ""
    learned: str = ""
    searches: tuple[str, ...] = ()
    data_free: bool = False
    reads_layers: bool = False
    probabilities: bool = False
    min_classes: int = 2
    failure: Literal["input", "last"] = "last"
    begins_at: str = ""
    per_image_radii: bool = False
    within: str = ""
    repairs: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    broken: str = ""
    described: Attack | None = field(default=None, compare=False, repr=False)
    given: Any = field(default=None, compare=False, repr=False)
    more: Mapping[str, Parameter] = field(default_factory=dict)
    says_norm: bool = True
    assumed: tuple[str, ...] = ()
    canonical: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "variant", variant_from_record(self.variant))

    @property
    def name(self) -> str:
        """Name of the implementation: `library:attack`, or `library:attack@variant`."""
        return f"{self.library}:{self.attack}" + (f"@{self.variant}" if self.variant else "")

    @property
    def is_user_attack(self) -> bool:
        """Whether the implementation is a user's attack, from a file or an object, rather than a library's attack."""
        return self.library == "user" or self.library.endswith(".py")

    @property
    def canonical_name(self) -> str:
        """Name of the canonical attack. If a user's attack declares no canonical attack, its own name."""
        return self.canonical or (self.name if self.is_user_attack else self.attack)

    @property
    def status(self) -> Status:
        """State of the implementation: "works" as shipped, "patched" or a fixed variant, or "broken" (cannot run)."""
        if self.broken:
            return "broken"
        return "patched" if self.repairs or self.variant else "works"


def name_from_record(name: str) -> str:
    """Convert an implementation's name from a results folder to the current name: "@repaired" becomes "@fixed"."""
    return name.replace("@repaired", "@fixed")


def current_implementation(name: str) -> str:
    """Convert an implementation's name given by a user to the current name. Warns if the name is an old form."""
    current = name_from_record(name)
    if current != name:
        warn_replaced(name, current)
    return current


def name_in_record(name: str) -> str:
    """Convert an implementation's name to the form in results folders: "@fixed" becomes "@repaired".

    The old form is kept in results folders so that the keys of older results stay valid.
    """
    return name.replace("@fixed", "@repaired")


def variant_from_record(variant: str) -> str:
    """Convert a variant's name from a results folder to the current name: "repaired" becomes "fixed"."""
    return "fixed" if variant == "repaired" else variant


def variant_in_record(variant: str) -> str:
    """Convert a variant's name to the form in results folders: "fixed" becomes "repaired"."""
    return "repaired" if variant == "fixed" else variant


class RunSetting(NamedTuple):
    """What an implementation would be run on: the model and its classes, images, threat model and parameters.

    Attributes:
        model: the model under attack.
        classes: number of classes of the model.
        shape: shape of an image, (C, H, W).
        threat_model: the threat model.
        parameters: canonical parameters.
    """

    model: Any
    classes: int
    shape: tuple[int, ...]
    threat_model: "ThreatModel"
    parameters: Mapping[str, Any]
