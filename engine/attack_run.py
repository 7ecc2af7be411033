"""What is run, stored and resumed: one model, one data set, one implementation, one threat model, one seed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

from ..adapters import IMPLEMENTATIONS, Attack, Implementation, ThreatModel, canonical_attack
from ..adapters.attack import Access, Kind, Knowledge
from ..adapters.models.ensemble import ensemble_name
from ..errors import InvalidInput, UnknownName, Unsupported
from .cell_defaults import SHARD_SIZE
from .searches.kinds import Search, parse_search

# What older specs do not say: a spec leaves them out where they have these values, so old keys stay.
_LATER: Mapping[str, Any] = {
    "rules": 1,
    "torch": "",
    "device": "",
    "surrogate": [],
    "fitted_on": None,
    "draws": 0,
    "eot": 1,
}
SINGLE_STEP = ("fgsm", "fgm", "f-fgsm")
_OTHER_GOALS = ("least-likely", "virtual-adversarial", "uap", "gd-uap")  # no single step shares what these look for


@dataclass(frozen=True)
class ModelOnData:
    """A model on its images: what a cell attacks. The digests are of code, weights and pixels: what changed is new.

    Args:
        model: name of the model.
        model_digest: `digest.identify_model`: of all that can change what it answers.
        data: name of the data.
        data_digest: of pixels and labels.
        images: how many there are.
        chosen: their names, if they were chosen by name; empty: the first of the data, in its order.
        called: what readers call the model where another of the same name is beside it; no part of the key.
    """

    model: str
    model_digest: str
    data: str
    data_digest: str
    images: int
    chosen: tuple[str, ...] = ()
    called: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "chosen", tuple(self.chosen))  # JSON has lists

    @property
    def name(self) -> str:
        """What readers call the model: its name, or `full_name` where one name has several weights."""
        return self.called or self.model

    @property
    def full_name(self) -> str:
        """Its name with a piece of its digest."""
        return f"{self.model} [{self.model_digest[:6]}]"

    def is_called(self, names: Iterable[str]) -> bool:
        """Whether the model is meant by one of these names."""
        return not {self.model, self.full_name}.isdisjoint(names)

    @property
    def spec(self) -> dict[str, Any]:
        """What `key` hashes, as JSON types."""
        spec = asdict(self) | {"chosen": list(self.chosen)}
        return {name: value for name, value in spec.items() if name != "called" and (name != "chosen" or value)}

    @cached_property
    def key(self) -> str:
        """Name of the file with the clean predictions: 20 hexadecimal digits of a hash over the spec."""
        return json_digest({"clean": self.spec})


def tell_apart(subjects: Iterable[ModelOnData]) -> dict[str, str]:
    """What models are called that share their name with another of other weights or code, by key of the subject."""
    known = {subject.key: subject for subject in subjects}
    digests: dict[str, set[str]] = {}
    for subject in known.values():
        digests.setdefault(subject.model, set()).add(subject.model_digest)
    return {key: subject.full_name for key, subject in known.items() if len(digests[subject.model]) > 1}


@dataclass(frozen=True)
class Surrogate:
    """A model that examples are made on, to be judged on another: its name and its `digest.identify_model`."""

    model: str
    model_digest: str


@dataclass(frozen=True)
class FitData:
    """Images that an attack which learns once is fitted on, none of which is scored; 0 images: it needs none."""

    data: str
    data_digest: str
    images: int


@dataclass(frozen=True)
class AttackRun:
    """One implementation against one subject; its records are one file, called by its key.

    Of versions the key has those that could change the numbers: of the attack's library in full, of the judge's rules,
    and of torch the first two parts (a patch release mends and does not run weeks of work again). A record's `versions`
    have all of them in full, with NumPy and what else there is, for a reader who wants to know.

    Args:
        subject: the model and its images.
        attack: an implementation, "foolbox:pgd", or the best-effort search over its radius, "best(foolbox:pgd)", or by
            several, "best(adv-lib:fmn,foolbox:pgd)", or the implementation at the radius where its success stops
            growing, "at-saturation(foolbox:pgd)", or several one after the other, each on the images that none before
            it has fooled, "worst-case(foolbox:fgsm,foolbox:pgd)".
        threat_model: norm, epsilon, targeted; of a finished cell at saturation the radius that was found.
        parameters: canonical parameters, as they are passed on; of a worst case those of each attack by its name.
        grid: further parameters and the values that a best-effort search tries of each.
        target: rule of the targets, for a targeted threat model.
        seed: random seed.
        pixels: success and distances count on images of 8 bits.
        measures: groups of metrics that are stored for each image.
        shard_size: images that are attacked at once.
        version: of the attack's library.
        rules: of the judge (`judge.RULES`); 1: davylamp 0.1.0.
        torch: its version, "2.5"; "": not noted.
        device: "cpu", "cuda", "mps": where sums are rounded alike; "": not noted.
        surrogate: what the examples are made on, several for an ensemble; empty: on the model itself.
        fitted_on: images that an attack which learns once learns from; None: from those that it is scored on, or it
            learns nothing.
        draws: answers that each example is judged by, of a model that draws random numbers; 0: it draws none.
        eot: answers of such a model whose mean the attack sees.
        implementation: the row itself where its name is not enough: a user's attack, or a stand-in for one that is not
            here. No part of the key.
        asked: the threat model of a finished cell at saturation as it was asked for, which is part of the key.
    """

    subject: ModelOnData
    attack: str
    threat_model: ThreatModel
    parameters: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    target: str = ""
    seed: int = 0
    pixels: bool = False
    measures: tuple[str, ...] = ()
    shard_size: int = SHARD_SIZE
    version: str = ""
    rules: int = 1
    torch: str = ""
    device: str = ""
    surrogate: tuple[Surrogate, ...] = ()
    fitted_on: FitData | None = None
    draws: int = 0
    eot: int = 1
    implementation: Implementation | None = field(default=None, compare=False, repr=False)
    asked: ThreatModel | None = field(default=None, compare=False, repr=False)

    @property
    def row(self) -> Implementation:
        """The implementation, also of a best-effort search over it; a stand-in where it is not in the catalogue here.

        Raises:
            UnknownName: if it is not in the catalogue and nothing is known of it.
        """
        if self.implementation is not None:
            return self.implementation
        try:
            return self.search.find_row()
        except (InvalidInput, Unsupported) as error:
            if not self.search.is_portfolio:
                raise
            # a spec that another version or hand wrote
            raise UnknownName("implementation", self.search.inside, IMPLEMENTATIONS) from error

    @cached_property
    def search(self) -> Search:
        """What its attack is run in."""
        return parse_search(self.attack)

    @property
    def as_planned(self) -> "AttackRun":
        """The cell as it was before it was run: one at saturation without the radius that was found."""
        return self if self.asked is None else replace(self, threat_model=self.asked, asked=None)

    @property
    def members(self) -> "tuple[AttackRun, ...]":
        """The attacks of a worst case in their order, each as a cell of its own; of another cell itself alone."""
        if self.search.kind != "worst-case":
            return (self,)
        alone = replace(self, implementation=None)
        return tuple(replace(alone, attack=name, parameters=self.parameters[name]) for name in self.search.members)

    @property
    def knowledge(self) -> Access:
        """What its attack knows of the model: "transfer" if it is made on a surrogate, else that of the attack.

        An attack that asks the model with what it learned on a surrogate knows what it asks; with what it learned on
        the model itself it has seen its gradients.
        """
        if self.row.learned:
            return "white-box" if self.fitted_on and not self.surrogate else canonical_attack(self.row).knowledge
        return "transfer" if self.surrogate else canonical_attack(self.row).knowledge

    @property
    def title(self) -> str:
        """What tables call its implementation: "foolbox:pgd", "foolbox:pgd via demo:digits"."""
        return self.attack + _origin_text(self)

    @property
    def attack_title(self) -> str:
        """What it is whichever library runs it: "pgd", "best(pgd)", "pgd via demo:digits"."""
        return replace(self.search, inside=self.row.canonical_name).name + _origin_text(self)

    @property
    def fit_key(self) -> str:
        """Name of the file with what its attack has learned; "" for a cell that keeps nothing of that kind."""
        return "" if self.fitted_on is None else json_digest(_fit_spec(self))

    @property
    def shards(self) -> int:
        """Number of pieces: one for an attack that looks for one perturbation, or one radius, for all images."""
        whole = self.search.runs_once or (self.row.universal and self.fitted_on is None)
        return 1 if whole else -(-self.subject.images // self.shard_size)

    def shard_slice(self, shard: int) -> range:
        """The images of a shard."""
        if self.shards == 1:
            return range(self.subject.images)
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.subject.images))

    @property
    def spec(self) -> dict[str, Any]:
        """What `key` hashes, as JSON types; `from_spec` reads it back."""
        spec = json.loads(json.dumps(asdict(replace(self.as_planned, implementation=None))))
        del spec["implementation"], spec["asked"]
        spec["subject"] = self.subject.spec
        return {name: value for name, value in spec.items() if name not in _LATER or value != _LATER[name]}

    @cached_property
    def key(self) -> str:
        """20 hexadecimal digits of a hash over the spec: equal on every machine, different if anything is."""
        return json_digest(self.spec)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "AttackRun":
        """The cell that has this spec.

        Raises:
            KeyError, TypeError, ValueError: if this is no spec of a cell.
        """
        fields = dict(spec)
        fields["subject"] = ModelOnData(**fields["subject"])
        fields["threat_model"] = ThreatModel(**fields["threat_model"])
        fields["grid"] = {name: tuple(values) for name, values in fields["grid"].items()}
        fields["measures"] = tuple(fields["measures"])
        fields["fitted_on"] = FitData(**fields["fitted_on"]) if fields.get("fitted_on") else None
        fields["surrogate"] = tuple(Surrogate(**each) for each in fields.get("surrogate", ()))
        return cls(**fields)

    @classmethod
    def from_record(cls, meta: Mapping[str, Any]) -> "AttackRun":
        """The cell of a record, by its `spec`; an attack that is not in the catalogue here by its `about`.

        No code is loaded: a user's attack is read as its record describes it.

        Raises:
            KeyError, TypeError, ValueError: if this is no record of a cell.
        """
        cell = cls.from_spec(meta["spec"])
        if not isinstance(cell.attack, str):
            return cell
        if cell.search.kind == "at-saturation" and "saturation" in meta:
            reached = replace(cell.threat_model, epsilon=float(meta["saturation"]["radius"]))
            cell = replace(cell, threat_model=reached, asked=cell.threat_model)
        if all(each in IMPLEMENTATIONS for each in cell.search.members):
            return cell
        return replace(cell, implementation=_stand_in(cell.search, meta.get("about")))


def call_as(cell: AttackRun, names: Mapping[str, str]) -> AttackRun:
    """The cell with its model called as `tell_apart` says."""
    called = names.get(cell.subject.key)
    return replace(cell, subject=replace(cell.subject, called=called)) if called else cell


def describe_attack(cell: AttackRun) -> dict[str, Any]:
    """What is known of its attack now, as JSON types: who reads the record later may not have it any more."""
    try:
        row = cell.row
        attack = canonical_attack(row)
    except UnknownName:
        return {}
    facts = {"library": row.library, "attack": attack.name, "title": attack.title, "source": attack.source}
    facts |= {"kind": attack.kind, "knowledge": attack.knowledge, "variant": row.variant}
    facts |= {"canonical": row.canonical} if row.canonical else {}
    return {**facts, "norms": list(row.classes), "random": list(row.random), "universal": row.universal}


def is_foreign(cell: AttackRun) -> bool:
    """Whether its attack is known from its record alone: another version, library or user had it."""
    return cell.implementation is not None and cell.implementation.given is None


def is_single_step(cell: AttackRun) -> bool:
    """Whether the attack makes one step only."""
    return cell.row.canonical_name in SINGLE_STEP or cell.parameters.get("steps") == 1


def is_iterated(cell: AttackRun) -> bool:
    """Whether it is a white-box attack that has to do at least as well as one step and as any black box."""
    if cell.search.sums_up:  # what it comes to is that of its attacks, whatever they are
        return False
    return cell.knowledge == "white-box" and not is_single_step(cell) and cell.row.canonical_name not in _OTHER_GOALS


def why_not_probed(cell: AttackRun) -> str:
    """Why a cell cannot be run again on a few images, as some failure indicators need it; "" if it can."""
    if cell.surrogate:
        return "the attack ran on a surrogate: check it there, white-box"
    if cell.fitted_on is not None:
        return "the attack has learned once, from other images"
    return "a worst case over several attacks: run each of them in full" if cell.search.sums_up else ""


def _origin_text(cell: AttackRun) -> str:
    """What titles add of where examples are made: " via SURROGATE", " fitted on DATA (200)"; "" on the model itself."""
    via = f" via {ensemble_name([each.model for each in cell.surrogate])}" if cell.surrogate else ""
    row, fit = cell.implementation or IMPLEMENTATIONS.get(cell.search.inside), cell.fitted_on
    if fit.data_digest == cell.subject.data_digest if fit else row is not None and row.universal:
        return f"{via} fitted on what it is scored on"
    return f"{via} fitted on {fit.data} ({fit.images})" if fit and fit.images else via


def _fit_spec(cell: AttackRun) -> dict[str, Any]:
    """What `Cell.fit_key` hashes: all that decides what is learned, and nothing of what it is scored on."""
    learner = cell.surrogate or (Surrogate(cell.subject.model, cell.subject.model_digest),)
    shared = ("attack", "threat_model", "parameters", "target", "seed", "version", "torch", "device", "fitted_on")
    spec = {name: cell.spec.get(name) for name in shared}
    spec["parameters"] = {name: v for name, v in cell.spec["parameters"].items() if name not in cell.row.searches}
    return {"fitted": [asdict(each) for each in learner], **spec}


def _stand_in(search: Search, about: Any) -> Implementation | None:
    """A row for an attack that is not here, from what a record says of it; None if that is too little."""
    if not isinstance(about, Mapping) or not {"attack", "library", "kind", "knowledge"} <= set(about):
        return None
    texts = {key: about.get(key, "") for key in ("attack", "library", "title", "source", "variant", "canonical")}
    lists = {key: about.get(key, []) for key in ("norms", "random")}
    known = about["kind"] in get_args(Kind) and about["knowledge"] in get_args(Knowledge)
    if not known or any(not isinstance(text, str) for text in texts.values()):
        return None
    if any(not isinstance(values, list) or set(map(type, values)) - {str} for values in lists.values()):
        return None
    row = Implementation(
        attack=texts["attack"],
        library=texts["library"],
        classes=dict.fromkeys(lists["norms"], ""),
        variant=texts["variant"],
        random=tuple(lists["random"]),
        universal=about.get("universal") is True,
        broken="it is not in the catalogue here; its record describes it",
        described=Attack(texts["attack"], texts["title"], about["kind"], about["knowledge"], texts["source"]),
        canonical=texts["canonical"],
    )
    return row if search.around(row) == search else None


def json_digest(value: Any) -> str:
    """20 hexadecimal digits of a hash over JSON types, whatever the order of the keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
