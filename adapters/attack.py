"""The nouns: attack, implementation (one library's version of it), threat model, result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ..errors import InvalidInput

Norm = Literal["linf", "l2", "l1", "l0", "unrestricted"]
Kind = Literal["fixed-budget", "minimum-norm"]
Knowledge = Literal["white-box", "score-based", "decision-based"]
Library = Literal["art", "foolbox", "torchattacks"]
Status = Literal["works", "repaired", "broken"]

NORMS: tuple[Norm, ...] = get_args(Norm)
LIBRARIES: tuple[Library, ...] = get_args(Library)


@dataclass(frozen=True)
class ThreatModel:
    """What the attacker may do.

    Args:
        norm: "linf", "l2", "l1" (on pixels in [0, 1]), "l0" (number of changed components, C x H x W in all), or
            "unrestricted" (rotation, blur: no ball bounds the change).
        epsilon: the radius of the ball in that norm; None: no radius, the attack looks for the smallest change.
        targeted: the attack succeeds only if the image is taken for its target class.

    Raises:
        InvalidInput: if the norm is unknown, or epsilon <= 0, or no ball of that radius fits in [0, 1].
    """

    norm: Norm
    epsilon: float | None = None
    targeted: bool = False

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise InvalidInput(f"expected a norm of {', '.join(NORMS)}, got {self.norm!r}")
        if self.epsilon is None:
            return
        if self.norm == "unrestricted":
            raise InvalidInput(f"expected no epsilon for an unrestricted threat model, got {self.epsilon}")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InvalidInput(f"expected epsilon > 0, got {self.epsilon}")
        if self.norm == "linf" and self.epsilon > 1:
            raise InvalidInput(
                f"expected linf epsilon in (0, 1], got {self.epsilon}; images are in [0, 1]: 8/255, not 8"
            )
        if self.norm == "l0" and (self.epsilon < 1 or self.epsilon != int(self.epsilon)):
            raise InvalidInput(f"expected l0 epsilon as a whole number >= 1 (of components), got {self.epsilon}")

    def check_radius(self, components: int) -> None:
        """Raise InvalidInput if the ball is larger than the box that images of C x H x W components live in."""
        largest = {"linf": 1.0, "l2": math.sqrt(components), "l1": components, "l0": components}.get(
            self.norm, math.inf
        )
        if self.epsilon is not None and self.epsilon > largest:
            raise InvalidInput(
                f"expected {self.norm} epsilon <= {largest:g} for images of {components} components, got {self.epsilon}"
            )


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

    `matched` holds the parameters that `compare` gives to every library unless told otherwise. Its `step_size` may be
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
        attack: name of the canonical attack.
        library: "art", "foolbox" or "torchattacks".
        classes: norm -> "module:Class". A leading dot means a module of this package (a repaired subclass).
        params: canonical parameter -> the library's own word. `seed`, `num_classes` and `starting_points` are
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
        probabilities: the attack gets softmax outputs instead of logits.
        min_classes: fewest classes that the attack's loss is defined for.
        failure: what the library returns where it fails: the "input", or its "last" iterate.
        own_radii: the class takes a tensor of radii, one for each image, as well as a number, unless it starts at a
            random point of the ball.
        within: "module:function" of a context manager entered around each library call.
        repairs: what is mended from outside so that the row runs, a sentence each.
        findings: ids of the known defects of the library's algorithm (`findings.FINDINGS`); the row runs as shipped.
        broken: why the row cannot run on today's stack; empty if it can.
    """

    attack: str
    library: Library
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
    probabilities: bool = False
    min_classes: int = 2
    failure: Literal["input", "last"] = "last"
    own_radii: bool = False
    within: str = ""
    repairs: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    broken: str = ""

    @property
    def name(self) -> str:
        """`library:attack`, or `library:attack@variant`."""
        return f"{self.library}:{self.attack}" + (f"@{self.variant}" if self.variant else "")

    @property
    def status(self) -> Status:
        """Whether it runs as shipped, runs because something outside it is mended, or cannot run."""
        if self.broken:
            return "broken"
        return "repaired" if self.repairs or self.variant else "works"


class Distances(NamedTuple):
    """How far each adversarial image is from its clean one; each of shape (N,), on pixels in [0, 1]."""

    l0: Tensor
    l1: Tensor
    l2: Tensor
    linf: Tensor


@dataclass(frozen=True)
class AttackResult:
    """What `run_attack` found; every tensor has one entry per image given, in the order given.

    An image is exactly one of: not attacked (the classifier got it wrong when clean), `success`, `violated` (what came
    back proves nothing, whether it fools the model or not: see `violations` and `judge.KINDS`), or robust to this run.
    A best-effort search adds `budget`: the smallest radius at which the attack succeeded; inf: at none, 0: wrong when
    clean.
    """

    implementation: str
    threat_model: ThreatModel
    parameters: Mapping[str, Any]
    seed: int
    adv_inputs: Tensor
    logits: Tensor
    adv_logits: Tensor
    labels: Tensor
    attacked: Tensor
    success: Tensor
    success_8bit: Tensor
    distances: Distances
    forwards: Tensor
    backwards: Tensor
    seconds: Tensor
    violations: tuple[tuple[str, ...], ...]
    targets: Tensor | None = None
    errors: tuple[str, ...] = field(default=())
    budget: Tensor | None = None

    @property
    def violated(self) -> Tensor:
        """(N,) bool: attacked, and what came back proves nothing: neither fooled nor robust."""
        flagged = torch.tensor([bool(kinds) for kinds in self.violations], device=self.success.device)
        return flagged & self.attacked

    @property
    def robust(self) -> Tensor:
        """(N,) bool: attacked by the rules, and still classified correctly (or not as the target)."""
        return self.attacked & ~self.success & ~self.violated

    @property
    def usable(self) -> Tensor:
        """(N,) bool: the images that prove something, see `judge.usable_images`."""
        from .running.judge import usable_images  # which needs the nouns of this module

        return usable_images(self.attacked, self.violated, self.success, self.distance, self.threat_model)

    @property
    def distance(self) -> Tensor:
        """(N,): the distance in the norm of the threat model (l2 where that is unrestricted)."""
        return getattr(self.distances, "l2" if self.threat_model.norm == "unrestricted" else self.threat_model.norm)
