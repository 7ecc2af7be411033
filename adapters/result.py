"""`AttackResult`, the result of one `run_attack` call, and rules for which images count."""

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
VARYING = "the model's output for one image differs between calls"
UNSTEADY = (
    f"{VARYING}. If it is random by design, declare it: --random "
    "or MODEL+random:yes on the command line, davylamp.Classifier(module, random=True) in Python. If it depends on the "
    "other images of the batch, as batch normalisation in training mode does, change the model"
)

# Fault of an invalid result by its kind (`judge.KINDS`); unknown for all other kinds.
OF_THE_MODEL = frozenset({"nan-logits", "nan-gradient", "unstable"})
OF_THE_LIBRARY = frozenset(
    {"nan", "out-of-bounds", "out-of-ball", "black", "unchanged", "barely-moved", "another-image"}
    | {"nan-query", "model-changed", "crashed"}
)
Fault = Literal["", "model", "library", "unknown"]

Mask = TypeVar("Mask", Tensor, np.ndarray)


class Distances(NamedTuple):
    """Distances between adversarial and clean images in four norms, each of shape (N,), for pixels in [0, 1]."""

    l0: Tensor
    l1: Tensor
    l2: Tensor
    linf: Tensor


@dataclass(frozen=True, repr=False)
class AttackResult:
    """Result of one `run_attack` call. Every tensor has one entry per image, in the order of the images.

    Each image has exactly one of four outcomes:

    - not attacked, because the model misclassifies the clean image
    - `success`: the attack fooled the model
    - `invalid`: the returned image says nothing about the model, for a reason in `violations`
    - `robust`: the attack did not fool the model

    `budget` is set by a radius search: the smallest radius at which the attack succeeded. For an image on which the
    attack never succeeded, the value is inf. For an image that was not attacked, the value is 0.

    `curves` is set if it was requested. For each image, it lists pairs (queries, distance): how far the nearest
    adversarial image found so far was after this number of queries. This image need not be the one that the attack
    returned.

    `surrogate` is the name of the model on which the examples were made. If there is a surrogate, the model itself is
    not queried by the attack. `forwards` and `backwards` are then zero, and the queries of the surrogate are in
    `surrogate_forwards` and `surrogate_backwards`.

    `fitted` is the result of `fit_attack` (`running.fit.Fitted`), for a fitted attack.

    `draws_fooled` is set for a model that is random by design. Each example is judged by several outputs (`draws`), and
    `draws_fooled` is the proportion of outputs that are wrong. `success` means that at least half of the outputs are
    wrong. The logits are those of the median output. Rates are means of the proportions.
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
        """Whether the result of each attacked image is invalid, shape (N,), bool.

        An image with an invalid result counts neither as fooled nor as robust.
        """
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
        """Cause of the invalid result of each image: "model", "library" or "unknown". "" for a valid result."""
        return tuple(fault_of(kinds) for kinds in self.violations)

    @property
    def robust(self) -> Tensor:
        """Whether each image was attacked without success and the result is valid, shape (N,), bool."""
        return self.attacked & ~self.success & ~self.invalid

    @property
    def undecided(self) -> int:
        """Number of attacked images that may be fooled or robust, because their results are invalid.

        Results that are invalid through a fault of the library are not counted.
        """
        faults = zip(self.faults, self.attacked.tolist(), strict=True)
        return sum(hit and fault in ("model", "unknown") for fault, hit in faults)

    @property
    def fooled_rate(self) -> Tensor:
        """Whether the model is fooled on each image, as 0 or 1, shape (N,), float64.

        For a random model, the proportion of outputs that are fooled. 0 for an invalid result.
        """
        if self.draws_fooled is None:
            return self.success.double()
        return self.draws_fooled.where(self.attacked & ~self.invalid, 0.0)

    @property
    def robust_rate(self) -> Tensor:
        """Whether the model is robust on each image, as 0 or 1, shape (N,), float64.

        For a random model, the proportion of outputs that are not fooled. 0 for an invalid result.
        """
        if self.draws_fooled is None:
            return self.robust.double()
        return (1 - self.draws_fooled).where(self.attacked & ~self.invalid, 0.0)

    @property
    def usable(self) -> Tensor:
        """Whether each image counts in metrics of the examples, shape (N,), bool, see `usable_images`."""
        return usable_images(self.attacked, self.invalid, self.success, self.distance, self.threat_model)

    def __repr__(self) -> str:
        rules = self.threat_model
        radius = "" if rules.epsilon is None else f" {rules.epsilon:.4g}"
        violated = int(self.invalid.sum())
        via = f" via {self.surrogate}" if self.surrogate else ""
        head = f"{self.implementation}{via}, {rules.norm}{radius}"
        head = "; ".join([note for note in self.notes if note == UNSTEADY] + [head])  # before any number
        more = "".join(f"; {note}" for note in self.notes if note != UNSTEADY)
        kinds = Counter(
            kind for kinds, hit in zip(self.violations, self.attacked.tolist(), strict=True) if hit for kind in kinds
        )
        why = f" ({', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))})" if kinds else ""
        spent = (float(count.double().mean()) for count in (self.forwards, self.backwards))
        passes = "{:.4g} forward and {:.4g} backward passes an image".format(*spent)
        if self.surrogate_forwards is not None and self.surrogate_backwards is not None:
            made = (self.surrogate_forwards.double().mean(), self.surrogate_backwards.double().mean())
            passes += ", {:.4g} and {:.4g} of the surrogate".format(*map(float, made))
        return f"AttackResult: {head}: {self._outcomes()}, {violated} invalid{why}; {passes}; seed {self.seed}{more}"

    def _outcomes(self) -> str:
        """Return the numbers of fooled and robust images and the fooling rate, as text."""
        attacked, fooled, robust = (int(flags.sum()) for flags in (self.attacked, self.success, self.robust))
        total = float(self.fooled_rate.sum())
        low, high = proportion_interval(total, attacked)[0], proportion_interval(total + self.undecided, attacked)[1]
        rate = f"MR {total / attacked:.3g}, 95 % interval [{low:.3g}, {high:.3g}]" if attacked else ""
        if self.draws_fooled is None:
            return f"{fooled} of {attacked} attacked images fooled{f' ({rate})' * bool(rate)}, {robust} robust"
        mean = f"{rate}: mean over {self.draws} samples of each of {attacked} attacked images; " * bool(rate)
        return f"{mean}fooled on at least half of its samples: {fooled} of {attacked} images, on fewer: {robust}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.to_frame().to_html(max_rows=10)}"

    def to_frame(self) -> Any:
        """Return a pandas frame with one row per image.

        Columns:

        - `label`, `predicted`, `adv_predicted`: the true class, and the classes predicted for the clean and the
          adversarial image
        - `attacked`, `success`, `success_8bit`, `violated`, `robust`: the outcome of the image. `success_8bit` is the
          success after rounding to 8 bits. `violated` means that the result is invalid.
        - `violations`: the reasons why the result is invalid, separated by spaces
        - `distance`: distance in the norm of the threat model
        - `l0`, `l1`, `l2`, `linf`: distances in these norms
        - `forwards`, `backwards`: numbers of forward and backward passes
        - `seconds`: time of the attack
        - `budget`: only for a radius search
        - `draws_fooled`: only for a random model
        - `surrogate_forwards`, `surrogate_backwards`: only with a surrogate
        """
        import pandas as pd

        sources = {"violated": "invalid"}  # the column keeps the name that results folders have
        flags = ("attacked", "success", "success_8bit", "violated", "robust", "distance")
        numbers = {name: getattr(self, sources.get(name, name)) for name in flags}
        numbers |= {**self.distances._asdict(), **{name: getattr(self, name) for name in _SPENT}}
        numbers |= {} if self.budget is None else {"budget": self.budget}
        numbers |= {} if self.draws_fooled is None else {"draws_fooled": self.draws_fooled}
        numbers |= {name: getattr(self, name) for name in SURROGATE_PASSES if self.surrogate}
        classes = {"label": self.labels, "predicted": self.logits.argmax(1), "adv_predicted": self.adv_logits.argmax(1)}
        columns = {name: values.detach().cpu().numpy() for name, values in (classes | numbers).items()}
        return pd.DataFrame({**columns, "violations": [" ".join(kinds) for kinds in self.violations]})

    @property
    def distance(self) -> Tensor:
        """Distance of each example in the norm of the threat model, shape (N,). In l2 if unrestricted."""
        return getattr(self.distances, distance_norm(self.threat_model.norm))


def distance_norm(norm: Norm) -> str:
    """Return the norm in which distances are measured under a threat model with norm `norm`: l2 for "unrestricted"."""
    return "l2" if norm == "unrestricted" else norm


def fault_of(kinds: Collection[str]) -> Fault:
    """Return which of "model" and "library" caused an invalid result, "unknown", or "" for a valid result.

    If the model is the cause, the image does not count as robust. If the library is the cause, the image does not count
    as fooled. If the cause is unknown, intervals include the case that the image is fooled and the case that it is
    robust.

    Args:
        kinds: reasons why the result of one image is invalid, see `judge.KINDS`. Empty for a valid result.
    """
    if not kinds:
        return ""
    if "model-changed" in kinds:  # the outputs came from a changed model
        return "library"
    if not OF_THE_MODEL.isdisjoint(kinds):  # all else may follow from it
        return "model"
    return "unknown" if OF_THE_LIBRARY.isdisjoint(kinds) else "library"


def usable_images(attacked: Mask, violated: Mask, success: Mask, distance: Mask, threat_model: ThreatModel) -> Mask:
    """Return whether each image counts in metrics of the examples, such as distances, shape (N,), bool.

    An image counts if it was attacked, its result is valid, and the example fools the model or is within the radius.
    (Examples of a minimum-norm attack may be outside the radius.) All arguments except `threat_model` are tensors or
    arrays of shape (N,).

    Args:
        attacked: whether each image was attacked.
        violated: whether each result is invalid, see `judge.KINDS`.
        success: whether each example fools the model within the threat model.
        distance: distance of the example in the norm of the threat model, as stored.
        threat_model: the threat model.
    """
    return attacked & ~violated & (success | (distance <= radius_with_tolerance(threat_model)))


def radius_with_tolerance(threat_model: ThreatModel) -> float:
    """Return the largest distance that counts as within the radius: epsilon plus a tolerance for rounding."""
    return float("inf") if threat_model.epsilon is None else largest_distance(threat_model.epsilon, threat_model.norm)


def allowed_radii(threat_model: ThreatModel) -> float | Tensor:
    """Return `radius_with_tolerance`. If each image has its own radius, return one value per image, shape (n,)."""
    radius = threat_model.exact_radius
    return float("inf") if radius is None else largest_distance(radius, threat_model.norm)
