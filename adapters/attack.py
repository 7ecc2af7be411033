"""Definitions of attacks, of their implementations in libraries, and of parameters."""

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
    """Raised by a patched attack whose own search for an adversarial starting image was unsuccessful."""


@dataclass(frozen=True)
class Parameter:
    """A canonical parameter: a name that has the same type, range and meaning in every library.

    `useless` is a value within the range for which the attack might return the clean images. Using it is an error.
    """

    type: type
    low: float
    high: float
    meaning: str
    useless: float | None = None


@dataclass(frozen=True)
class Attack:
    """A canonical attack, independent of any library.

    `matched` holds the parameters that `compare` passes to every library unless the user sets them. Its `step_size`
    may be relative to the radius, as in "2 epsilon" or "2.5 epsilon / steps" (Madry et al. 2018), with any factor.
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
        attack: name of the canonical attack, or the name that a user's code gives its attack.
        library: name of the library (`Library.name`), or the file of a user's attack.
        classes: norm -> "module:Class". A leading dot refers to the package of the library's definition.
        params: canonical parameter -> the library's name for it. `seed`, `num_classes` and `starting_points` are
            supplied by `run_attack` to the implementations that name them.
        fixed: arguments, under the library's names, that are always passed because they turn the class into this
            attack.
        variant: "fixed" if the algorithm differs from the library's.
        targeted: "no", "yes", or "only" (under an untargeted threat model, the target is then the second most likely
            class).
        aims_at: "least-likely" or "second-likely": target of a targeted-only implementation if none is given.
        random: sources of randomness that a seed fixes ("python", "numpy", "torch"); empty for a deterministic attack.
        alone: whether the library gets one image per call, because it would couple the images of a batch.
        order: "kept" if image i of the batch is row i of every query (a multiple of the batch consists of stacked
            copies); "content" if the library shuffles or shrinks the batch. Each queried row is then attributed to the
            nearest image.
        universal: whether the attack makes one perturbation for all images of a call. The call is never split. A
            queried row that is equally near to two images is attributed to the second.
        fit: "module:function" of a fitted attack. It is called like the driver and returns tensors by name, from which
            `apply` makes examples of any images without querying the model.
        apply: "module:function" (learned, inputs, threat_model) -> images. If empty, the fitted tensor "perturbation"
            is added to the images. For an attack that queries the model with its fitted tensors, the function returns
            the starting images.
        learned: the library's argument for the fitted tensors, for an attack that queries the model with them. They are
            then passed to the attack instead of being applied.
        searches: canonical parameters that apply after the fit and do not affect the fitted tensors.
        data_free: whether the fit depends only on the model and the shape of the images.
        reads_layers: whether the attack reads or changes layers inside the model, which must then be in this process.
        probabilities: whether the attack gets softmax outputs instead of logits.
        min_classes: smallest number of classes for which the attack's loss is defined.
        failure: the image that the library returns if the attack fails: the "input" or its "last" iterate.
        begins_at: the library's argument for adversarial starting images, one per image, which replace the clean images
            as the start. Empty if the library has no such argument. A portfolio search passes examples of other
            attacks.
        per_image_radii: whether the class accepts a tensor with one radius per image. Even then, only a single radius
            is accepted with a random start in the ball.
        within: "module:function" of a context manager that is active during each library call.
        repairs: compatibility patches that let the implementation run, one sentence each.
        findings: ids of known issues of the library's algorithm (`Library.findings`), which runs as shipped.
        broken: why the implementation cannot run with current dependencies. Empty if it can.
        described: the canonical attack, if it is not in the catalogue: a user's attack, or an attack of a library that
            is not installed.
        given: the user's attack, for an implementation made from a user's attack.
        more: parameters of this implementation that are not canonical parameters.
        says_norm: whether the attack declares its norms. If not, the user must name a norm.
        assumed: assumptions that davylamp makes about a user's attack, one sentence each.
        canonical: the canonical attack that a user's attack implements, as declared by its author. Empty if undeclared.
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
        """`library:attack`, or `library:attack@variant`."""
        return f"{self.library}:{self.attack}" + (f"@{self.variant}" if self.variant else "")

    @property
    def is_user_attack(self) -> bool:
        """Whether the implementation is a user's attack, from a file or an object, rather than a library's attack."""
        return self.library == "user" or self.library.endswith(".py")

    @property
    def canonical_name(self) -> str:
        """Name of the canonical attack. For a user's attack that declares none, the attack's own name."""
        return self.canonical or (self.name if self.is_user_attack else self.attack)

    @property
    def status(self) -> Status:
        """Whether the implementation works as shipped, is patched or a fixed variant, or cannot run ("broken")."""
        if self.broken:
            return "broken"
        return "patched" if self.repairs or self.variant else "works"


def name_from_record(name: str) -> str:
    """Convert an implementation's name in a record to its current name: "@repaired" becomes "@fixed"."""
    return name.replace("@repaired", "@fixed")


def current_implementation(name: str) -> str:
    """Return the current form of an implementation's name that a user gave, and warn if it is an old form."""
    current = name_from_record(name)
    if current != name:
        warn_replaced(name, current)
    return current


def name_in_record(name: str) -> str:
    """Convert an implementation's name to its form in records, which keeps keys valid: "@repaired" for "@fixed"."""
    return name.replace("@fixed", "@repaired")


def variant_from_record(variant: str) -> str:
    """Return the current name of a variant: "fixed" for "repaired"."""
    return "fixed" if variant == "repaired" else variant


def variant_in_record(variant: str) -> str:
    """Return the name of a variant as records have it: "repaired" for "fixed"."""
    return "repaired" if variant == "fixed" else variant


class RunSetting(NamedTuple):
    """Setting of an attack run: model, number of classes, image shape (C, H, W), threat model and parameters."""

    model: Any
    classes: int
    shape: tuple[int, ...]
    threat_model: "ThreatModel"
    parameters: Mapping[str, Any]
