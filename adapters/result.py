"""What an attack came to, and which images prove something."""

import html
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..conventions import largest_distance
from ..deprecation import warn_renamed
from ..intervals import proportion_interval
from .attack import Access
from .threat_model import Norm, ThreatModel

_SPENT = ("forwards", "backwards", "seconds")
SURROGATE_PASSES = ("surrogate_forwards", "surrogate_backwards")
UNSTEADY = "the model answers one image differently each time: declare random=True"

# Whose fault an invalid result is, by its kind (`judge.KINDS`); of all other kinds nobody can say.
OF_THE_MODEL = frozenset({"nan-logits", "nan-gradient", "unstable"})
OF_THE_LIBRARY = frozenset(
    {"nan", "out-of-bounds", "out-of-ball", "black", "unchanged", "barely-moved", "another-image"}
    | {"nan-query", "model-changed", "crashed"}
)
Fault = Literal["", "model", "library", "unknown"]

Mask = TypeVar("Mask", Tensor, np.ndarray)


class Distances(NamedTuple):
    """How far each adversarial image is from its clean one; each of shape (N,), on pixels in [0, 1]."""

    l0: Tensor
    l1: Tensor
    l2: Tensor
    linf: Tensor


@dataclass(frozen=True, repr=False)
class AttackResult:
    """What `run_attack` found; every tensor has one entry per image given, in the order given.

    An image is exactly one of: not attacked (the classifier got it wrong when clean), `success`, `violated` (what came
    back proves nothing, whether it fools the model or not: see `violations` and `judge.KINDS`), or robust to this run.
    A best-effort search adds `budget`: the smallest radius at which the attack succeeded; inf: at none, 0: wrong when
    clean. `curves`, where they were noted, say how near the nearest adversarial point of each image was, whether the
    attack returned it or not: (passes, distance) each time it came nearer. `notes` say what was chosen or rounded where
    nobody said it. An attack on a `surrogate` (its name) asked the
    model itself nothing: `forwards` and `backwards` are zero, `surrogate_forwards` and `surrogate_backwards` are (N,).
    `fitted` is what an attack that learns once has learned before (`running.fit.Fitted`), with what that cost.
    Of a model that draws random numbers on purpose, `draws_fooled` is the share of the judge's draws (`draws` of them)
    that the example fools, (N,); `success` then means at least half of them, the logits are those of the median draw,
    and the rate is the mean of the shares.
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
    knowledge: Access = "white-box"
    notes: tuple[str, ...] = ()
    surrogate: str = ""
    surrogate_forwards: Tensor | None = None
    surrogate_backwards: Tensor | None = None
    fitted: Any = None
    curves: tuple[tuple[tuple[int, float], ...], ...] | None = None
    draws: int = 0
    eot: int = 1
    draws_fooled: Tensor | None = None

    @property
    def invalid(self) -> Tensor:
        """(N,) bool: attacked, and what came back proves nothing: neither fooled nor robust."""
        flagged = torch.tensor([bool(kinds) for kinds in self.violations], device=self.success.device)
        return flagged & self.attacked

    @property
    def violated(self) -> Tensor:
        """Deprecated name of `invalid`."""
        warn_renamed("AttackResult", "violated", "invalid")
        return self.invalid

    @property
    def fooled_share(self) -> Tensor:
        """Deprecated name of `fooled_rate`."""
        warn_renamed("AttackResult", "fooled_share", "fooled_rate")
        return self.fooled_rate

    @property
    def robust_share(self) -> Tensor:
        """Deprecated name of `robust_rate`."""
        warn_renamed("AttackResult", "robust_share", "robust_rate")
        return self.robust_rate

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Whose fault an invalid result is, by image: "model", "library", "unknown"; "" where it is valid."""
        return tuple(fault_of(kinds) for kinds in self.violations)

    @property
    def robust(self) -> Tensor:
        """(N,) bool: attacked by the rules, and still classified correctly (or not as the target)."""
        return self.attacked & ~self.success & ~self.invalid

    @property
    def undecided(self) -> int:
        """Attacked images of which nobody knows whether the attack fools them; those the library failed on are not."""
        faults = zip(self.faults, self.attacked.tolist(), strict=True)
        return sum(hit and fault in ("model", "unknown") for fault, hit in faults)

    @property
    def fooled_rate(self) -> Tensor:
        """(N,) float64: how much of each image is fooled: 0 or 1, or the share of the draws; of a violation nothing."""
        if self.draws_fooled is None:
            return self.success.double()
        return self.draws_fooled.where(self.attacked & ~self.invalid, 0.0)

    @property
    def robust_rate(self) -> Tensor:
        """(N,) float64: how much of each image is robust: 0 or 1, or the share of the draws; of a violation nothing."""
        if self.draws_fooled is None:
            return self.robust.double()
        return (1 - self.draws_fooled).where(self.attacked & ~self.invalid, 0.0)

    @property
    def usable(self) -> Tensor:
        """(N,) bool: the images that prove something, see `usable_images`."""
        return usable_images(self.attacked, self.invalid, self.success, self.distance, self.threat_model)

    def __repr__(self) -> str:
        rules = self.threat_model
        radius = "" if rules.epsilon is None else f" {rules.epsilon:.4g}"
        attacked, fooled, violated = (int(flags.sum()) for flags in (self.attacked, self.success, self.invalid))
        via = f" via {self.surrogate}" if self.surrogate else ""
        head = f"{self.implementation}{via}, {rules.norm}{radius}"
        head = "; ".join([note for note in self.notes if note == UNSTEADY] + [head])  # before any number
        more = "".join(f"; {note}" for note in self.notes if note != UNSTEADY)
        total = float(self.fooled_rate.sum())
        low, high = proportion_interval(total, attacked)[0], proportion_interval(total + self.undecided, attacked)[1]
        rate = f" (MR {total / attacked:.3g}, 95 % interval [{low:.3g}, {high:.3g}])" if attacked else ""
        summary = f"{fooled} of {attacked} attacked images fooled{rate}, {int(self.robust.sum())} not"
        kinds = Counter(
            kind for kinds, hit in zip(self.violations, self.attacked.tolist(), strict=True) if hit for kind in kinds
        )
        why = f" ({', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))})" if kinds else ""
        spent = (float(count.double().mean()) for count in (self.forwards, self.backwards))
        passes = "{:.4g} forward and {:.4g} backward passes an image".format(*spent)
        if self.surrogate_forwards is not None and self.surrogate_backwards is not None:
            made = (self.surrogate_forwards.double().mean(), self.surrogate_backwards.double().mean())
            passes += ", {:.4g} and {:.4g} of the surrogate".format(*map(float, made))
        if self.draws_fooled is not None:
            more = f"; each judged by {self.draws} draws, fooled: by at least half of them{more}"
        return f"AttackResult: {head}: {summary}, {violated} violations{why}; {passes}; seed {self.seed}{more}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.to_frame().to_html(max_rows=10)}"

    def to_frame(self) -> Any:
        """One line for each image, as a pandas frame.

        Columns: `label`, `predicted`, `adv_predicted`, `attacked`, `success`, `success_8bit`, `violated`, `robust`,
        `distance`, `l0`, `l1`, `l2`, `linf`, `forwards`, `backwards`, `seconds`, `violations` (kinds, with blanks
        between), `budget` of a best-effort search, `draws_fooled` of a random model,
        and `surrogate_forwards` and `surrogate_backwards` with a surrogate.
        """
        import pandas as pd

        flags = ("attacked", "success", "success_8bit", "violated", "robust")
        numbers = {name: getattr(self, name) for name in (*flags, "distance")}
        numbers |= {**self.distances._asdict(), **{name: getattr(self, name) for name in _SPENT}}
        numbers |= {} if self.budget is None else {"budget": self.budget}
        numbers |= {} if self.draws_fooled is None else {"draws_fooled": self.draws_fooled}
        numbers |= {name: getattr(self, name) for name in SURROGATE_PASSES if self.surrogate}
        classes = {"label": self.labels, "predicted": self.logits.argmax(1), "adv_predicted": self.adv_logits.argmax(1)}
        columns = {name: values.detach().cpu().numpy() for name, values in (classes | numbers).items()}
        return pd.DataFrame({**columns, "violations": [" ".join(kinds) for kinds in self.violations]})

    @property
    def distance(self) -> Tensor:
        """(N,): the distance in the norm of the threat model (l2 where that is unrestricted)."""
        return getattr(self.distances, distance_norm(self.threat_model.norm))


def distance_norm(norm: Norm) -> str:
    """The norm that distances are measured in under a threat model: its norm, l2 where that is unrestricted."""
    return "l2" if norm == "unrestricted" else norm


def fault_of(kinds: Collection[str]) -> Fault:
    """Whose fault an invalid result is: decided here, for every view of it.

    The model's counts against the model: its image is not robust. The library's counts against the library: it did not
    fool its image. In every other number an invalid result may be either, and the interval covers both.

    Args:
        kinds: of the violations of one image, see `judge.KINDS`; none: the result is valid.
    """
    if not kinds:
        return ""
    if "model-changed" in kinds:  # the answers were of another model
        return "library"
    if not OF_THE_MODEL.isdisjoint(kinds):  # all else may follow from it
        return "model"
    return "unknown" if OF_THE_LIBRARY.isdisjoint(kinds) else "library"


def usable_images(attacked: Mask, violated: Mask, success: Mask, distance: Mask, threat_model: ThreatModel) -> Mask:
    """Images that prove something, shape (N,) bool: attacked, no violation, and a success or within the radius.

    The nearest example of a minimum-norm attack may lie outside of the radius. Tensors or arrays, all of shape (N,).

    Args:
        attacked: by the rules of the run.
        violated: see `KINDS`.
        success: fooled within the rules.
        distance: of the example in the norm of the threat model, as it is stored.
        threat_model: the rules.
    """
    return attacked & ~violated & (success | (distance <= radius_with_tolerance(threat_model)))


def radius_with_tolerance(threat_model: ThreatModel) -> float:
    """Radius up to which a change counts as inside the ball: epsilon and the stated rounding tolerance."""
    return float("inf") if threat_model.epsilon is None else largest_distance(threat_model.epsilon, threat_model.norm)


def allowed_radii(threat_model: ThreatModel) -> float | Tensor:
    """`radius_with_tolerance`; where every image has a separate radius, of each, shape (n,)."""
    radius = threat_model.exact_radius
    return float("inf") if radius is None else largest_distance(radius, threat_model.norm)
