"""What an attack is: the canonical one, one library's implementation of it, and the words for its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from .threat_model import ThreatModel

Kind = Literal["fixed-budget", "minimum-norm"]
Knowledge = Literal["white-box", "score-based", "decision-based"]
Access = Literal["white-box", "score-based", "decision-based", "transfer"]  # "transfer": to a surrogate alone
Status = Literal["works", "repaired", "broken"]


class NoStart(Exception):
    """A library's own search for an image that fools the model came to nothing."""


@dataclass(frozen=True)
class Parameter:
    """One word of the canonical vocabulary: its type, smallest and largest value, and the one meaning that it has.

    `useless` is a value of that range with which the attack could change nothing: it is refused.
    """

    type: type
    low: float
    high: float
    meaning: str
    useless: float | None = None


@dataclass(frozen=True)
class Attack:
    """A canonical attack: what the field calls it, whatever the library.

    `matched` holds the parameters that `compare` gives to every library unless others are given. Its `step_size` may be
    relative to the radius: "2.5 epsilon / steps" (Madry et al. 2018: an iterate can cross the ball) or "2 epsilon",
    with any number.
    """

    name: str
    title: str
    kind: Kind
    knowledge: Knowledge
    source: str
    matched: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Implementation:
    """One library's version of an attack: a row of the catalogue, called `library:attack` or `library:attack@variant`.

    Args:
        attack: name of the canonical attack; of a user's attack what its code calls it.
        library: name of its record, `Library.name`; or the file that a user's attack is from.
        classes: norm -> "module:Class". A leading dot means a module of the library record's package.
        params: canonical parameter -> the library's word. `seed`, `num_classes` and `starting_points` are
            supplied by `run_attack` to the rows that name them.
        fixed: arguments in the library's words that are always passed: what makes the class this attack.
        variant: "repaired" for a row whose algorithm differs from what the library ships.
        targeted: "no", "yes", or "only" (untargeted threat models then aim at the second most likely class).
        aims_at: "least-likely" or "second-likely": where a targeted-only row aims if no target is given.
        random: the sources of randomness that a seed fixes ("python", "numpy", "torch"); empty: deterministic.
        alone: the library gets one image per call, since it would couple the images of a batch.
        order: "kept" if image i of the batch is row i of every query (whole multiples of the batch: stacked copies);
            "content" if the library shuffles or shrinks the batch, so that a query is attributed to the nearest image.
        universal: one perturbation for all images of a call, so the call is never split, and a query that is as near to
            another image is attributed to that one.
        fit: "module:function" of an attack that learns once: called as the driver is, it returns tensors by name, of
            which `apply` then makes examples of any images without a question to the model.
        apply: "module:function" (learned, inputs, threat_model) -> images; empty: the "perturbation" is added. Of an
            attack that asks the model with what it has learned: the images that it begins with.
        learned: the library's word for what it has learned, for an attack that asks the model with it: it is called
            with that, not applied.
        searches: canonical parameters of what comes after the learning, which what was learned does not depend on.
        data_free: what it learns depends on the model alone: of the images only the shape counts.
        reads_layers: the attack looks at, or changes, layers inside of the model, so they have to be in this process.
        probabilities: the attack gets softmax outputs instead of logits.
        min_classes: fewest classes that the attack's loss is defined for.
        failure: what the library returns where it fails: the "input", or its "last" iterate.
        begins_at: the library's word for adversarial images, one for each image, that the attack can begin at instead
            of the clean images; empty: there is none. A search by several attacks hands it what the others found.
        per_image_radii: the class takes a tensor of radii, one for each image, as well as a number, unless it starts at
            a random point of the ball.
        within: "module:function" of a context manager entered around each library call.
        repairs: what is mended from outside so that the row runs, a sentence each.
        findings: ids of known defects of the library's algorithm (`Library.findings`); the row runs as shipped.
        broken: why the row cannot run on today's stack; empty if it can.
        described: the canonical attack, for a row whose attack is not in the catalogue: a user's, or of a record that
            is not installed here.
        given: the user's attack itself, for a row made of one.
        more: parameters of this row alone, outside the common vocabulary.
        says_norm: whether the norms are known; otherwise the user has to name one.
        assumed: what was taken for granted of a user's attack, a sentence each.
        canonical: the canonical attack that a user's is, as its author says; empty: none but itself.
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

    @property
    def name(self) -> str:
        """`library:attack`, or `library:attack@variant`."""
        return f"{self.library}:{self.attack}" + (f"@{self.variant}" if self.variant else "")

    @property
    def is_user_attack(self) -> bool:
        """Whether it is a user's attack, from a file or handed over, and of no library's record."""
        return self.library == "user" or self.library.endswith(".py")

    @property
    def canonical_name(self) -> str:
        """The canonical attack, whichever library runs it; a user's that is not said to be one is known by itself."""
        return self.canonical or (self.name if self.is_user_attack else self.attack)

    @property
    def status(self) -> Status:
        """Whether it runs as shipped, runs because something outside it is mended, or cannot run."""
        if self.broken:
            return "broken"
        return "repaired" if self.repairs or self.variant else "works"


class RunSetting(NamedTuple):
    """What a row is to be run on: a model with its number of classes, the shape (C, H, W) of its images, and how."""

    model: Any
    classes: int
    shape: tuple[int, ...]
    threat_model: "ThreatModel"
    parameters: Mapping[str, Any]
