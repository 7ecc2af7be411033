"""The attack run, the unit that is stored and resumed: one implementation on one model, with threat model and seed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

from ..adapters import IMPLEMENTATIONS, Attack, Implementation, ThreatModel, canonical_attack
from ..adapters.attack import (
    Access,
    Kind,
    Knowledge,
    name_from_record,
    name_in_record,
    variant_in_record,
)
from ..adapters.models.ensemble import ensemble_name
from ..errors import InvalidInput, UnknownName, Unsupported
from .cell_defaults import SHARD_SIZE
from .searches.kinds import Search, parse_search

# Defaults of fields that older specs lack. A spec omits fields with these values, so that old keys stay valid.
_LATER: Mapping[str, Any] = {
    "rules": 1,
    "torch": "",
    "device": "",
    "surrogate": [],
    "fitted_on": None,
    "draws": 0,
    "eot": 1,
}
_SHOWN = ("called", "data_called")  # display names
_CHOICES = ("chosen", "drawn")  # how images were selected; a spec omits empty ones
SINGLE_STEP = ("fgsm", "fgm", "f-fgsm")
_OTHER_GOALS = ("least-likely", "virtual-adversarial", "uap", "gd-uap")  # single-step attacks with other goals


@dataclass(frozen=True)
class ModelOnData:
    """A model together with its evaluation images.

    Args:
        model: name of the model.
        model_digest: hash of everything that can change the model's outputs, from `digest.identify_model`.
        data: name of the data.
        data_digest: hash of the pixels and labels.
        images: number of images.
        chosen: names of the images, if the user selected images by name. Otherwise empty.
        drawn: two numbers if the images were drawn at random: the number of images to draw from, and the seed of
            `sources.random_order`. Empty if the images are the first ones of the data or were selected by name.
        called: display name, which differs from `model` only if several models of a folder share this name. Not part of
            `key`.
        data_called: display name of the data, which differs from `data` only if several data sets of a folder share
            this name and the number of images. Not part of `key`.
    """

    model: str
    model_digest: str
    data: str
    data_digest: str
    images: int
    chosen: tuple[str, ...] = ()
    drawn: tuple[int, ...] = ()
    called: str = field(default="", compare=False)
    data_called: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name in ("chosen", "drawn"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists

    @property
    def name(self) -> str:
        """Display name of the model: `called` if it is set, otherwise `model`."""
        return self.called or self.model

    @property
    def data_name(self) -> str:
        """Display name of the data: `data_called` if it is set, otherwise `data`."""
        return self.data_called or self.data

    @property
    def full_name(self) -> str:
        """Name of the model with the first six digits of its digest."""
        return f"{self.model} [{self.model_digest[:6]}]"

    def is_called(self, names: Iterable[str]) -> bool:
        """Whether the model's name or full name is among these names."""
        return not {self.model, self.full_name}.isdisjoint(names)

    @property
    def spec(self) -> dict[str, Any]:
        """The fields that identify the model and its images, as JSON types. `key` is their hash."""
        spec = asdict(self) | {"chosen": list(self.chosen), "drawn": list(self.drawn)}
        return {name: value for name, value in spec.items() if name not in _SHOWN and (name not in _CHOICES or value)}

    @property
    def population(self) -> int | None:
        """Number of images from which the evaluation images were drawn at random; None if they were not drawn."""
        return self.drawn[0] if self.drawn else None

    @cached_property
    def key(self) -> str:
        """Hash of the spec, 20 hexadecimal digits. It is also the file name of the clean predictions."""
        return json_digest({"clean": self.spec})


def tell_apart(subjects: Iterable[ModelOnData]) -> dict[str, tuple[str, str]]:
    """Return unique display names for different models with one name, and for different data with one name.

    Models differ in their weights or code. Data differ in their pixels or labels. Only data of one model are compared,
    because models may need images of different sizes. Data whose numbers of images differ need no other name, because
    tables show this number.

    Returns:
        The display names of the model and of the data by `ModelOnData.key`, each "" if the usual name is unique.
    """
    known = {subject.key: subject for subject in subjects}
    digests: dict[Any, set[str]] = {}
    for each in known.values():
        digests.setdefault(each.model, set()).add(each.model_digest)
        digests.setdefault(_images_of(each), set()).add(each.data_digest)
    names = {}
    for key, each in known.items():
        is_changed = len(digests[_images_of(each)]) > 1
        model = each.full_name if len(digests[each.model]) > 1 else ""
        names[key] = model, f"{each.data} [{each.data_digest[:6]}]" if is_changed else ""
    return {key: each for key, each in names.items() if any(each)}


def _images_of(subject: ModelOnData) -> tuple[Any, ...]:
    return subject.model, subject.data, subject.images, subject.chosen, subject.drawn


def show_as(subject: ModelOnData, names: Mapping[str, tuple[str, str]]) -> ModelOnData:
    """Return a model on its images with its display names. `names` comes from `tell_apart`."""
    shown = names.get(subject.key, ("", ""))
    if shown == (subject.called, subject.data_called):
        return subject
    return replace(subject, called=shown[0], data_called=shown[1])


@dataclass(frozen=True)
class Surrogate:
    """A model on which examples are made for a different model.

    Args:
        model: name of the surrogate.
        model_digest: digest of the surrogate, from `digest.identify_model`.
    """

    model: str
    model_digest: str


@dataclass(frozen=True)
class FitData:
    """Images on which an attack is fitted, if they differ from the evaluation images.

    Args:
        data: name of the data.
        data_digest: hash of the pixels and labels.
        images: number of images; 0 if the attack is fitted without images.
    """

    data: str
    data_digest: str
    images: int


@dataclass(frozen=True)
class AttackRun:
    """A run of one implementation on one model and its images.

    Its results are stored in one file, named by the run's key.

    The key is a hash of everything that can change the results. It includes the full version of the attack's library
    and the version of the rules by which examples are judged. It includes only the first two parts of torch's version,
    so that a patch release does not invalidate results. The record of a run lists all versions in full (`versions`).

    Args:
        subject: the model and its images.
        attack: name of an implementation, "foolbox:pgd", or of a search: a radius search "best(foolbox:pgd)"; a
            portfolio search "best(adv-lib:fmn,foolbox:pgd)"; an attack at its saturation radius
            "at-saturation(foolbox:pgd)"; or a worst case "worst-case(foolbox:fgsm,foolbox:pgd)". In a worst case, each
            attack runs on the images that the attacks before it did not fool.
        threat_model: norm, epsilon and targeted. A finished run at saturation has the radius that was found.
        parameters: canonical parameters. For a worst case, the parameters of each attack, by its name.
        grid: for a radius search, the values to try of further parameters, by parameter.
        target: target rule, for a targeted threat model; otherwise "".
        seed: random seed.
        pixels: whether success and distances are measured on 8-bit images.
        measures: groups of metrics that are stored for each image.
        shard_size: number of images that are attacked and saved together.
        version: version of the attack's library.
        rules: version of the rules by which examples are judged (`judge.RULES`); 1 for davylamp 0.1.0.
        torch: first two parts of torch's version, "2.5"; "" if not recorded.
        device: "cpu", "cuda" or "mps", because rounding depends on it; "" if not recorded.
        surrogate: models on which the examples are made, several for an ensemble. Empty if the examples are made on the
            evaluated model.
        fitted_on: images on which the attack is fitted. None if the attack is fitted on the evaluation images, or is
            not a fitted attack.
        draws: number of samples of a random model on which each example is judged; 0 for a deterministic model.
        eot: number of samples of a random model that the attack averages in each query.
        implementation: the implementation, if it is not in the catalogue: a user's attack, or a placeholder for an
            attack that is not installed. Otherwise None. Not part of the key.
        asked: for a finished run at saturation, the requested threat model. The key then contains `asked` instead of
            `threat_model`. Otherwise None.
        added: groups of metrics that were computed after the evaluation by `measure_folder`. Not part of the key.
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
    added: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.attack, str) and (name := name_from_record(self.attack)) != self.attack:
            object.__setattr__(self, "attack", name)
            parameters = {name_from_record(each): value for each, value in self.parameters.items()}
            object.__setattr__(self, "parameters", parameters)

    @property
    def row(self) -> Implementation:
        """The implementation. For a search, the implementation inside the search.

        An attack that is not in the catalogue has a placeholder, which is built from the description in the run's
        record.

        Raises:
            UnknownName: if the implementation is not in the catalogue and the record does not describe it.
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
        """The search that the run's name denotes, such as "best(...)", or a single attack."""
        return parse_search(self.attack)

    @property
    def as_planned(self) -> "AttackRun":
        """The run as planned. For a finished run at saturation, this is the run without the radius that was found."""
        return self if self.asked is None else replace(self, threat_model=self.asked, asked=None)

    @property
    def measured(self) -> tuple[str, ...]:
        """All groups of metrics in the run's record: those of the evaluation, then those that were added later."""
        return tuple(dict.fromkeys((*self.measures, *self.added)))

    @property
    def members(self) -> "tuple[AttackRun, ...]":
        """The attacks of a worst case, each as a run, in their order. Other runs have themselves as the only member."""
        if self.search.kind != "worst-case":
            return (self,)
        alone = replace(self, implementation=None)
        return tuple(replace(alone, attack=name, parameters=self.parameters[name]) for name in self.search.members)

    @property
    def knowledge(self) -> Access:
        """Attacker knowledge of the run: "transfer" if the run has a surrogate, otherwise the knowledge of its attack.

        A fitted attack may also query the evaluated model. Such an attack is "white-box" if it was fitted on the
        evaluated model, because the fit used the gradients. If it was fitted on a surrogate, its knowledge is that of
        its queries.
        """
        if self.row.learned:
            return "white-box" if self.fitted_on and not self.surrogate else canonical_attack(self.row).knowledge
        return "transfer" if self.surrogate else canonical_attack(self.row).knowledge

    @property
    def title(self) -> str:
        """Name of the implementation in tables: "foolbox:pgd", "foolbox:pgd via demo:digits"."""
        return self.attack + _origin_text(self)

    @property
    def attack_title(self) -> str:
        """Name of the attack, independent of the library: "pgd", "best(pgd)", "pgd via demo:digits"."""
        return replace(self.search, inside=self.row.canonical_name).name + _origin_text(self)

    @property
    def fit_key(self) -> str:
        """File name of the arrays of the fitted attack; "" if the attack is not fitted on other images."""
        return "" if self.fitted_on is None else json_digest(_fit_spec(self))

    @property
    def needs_all_images(self) -> bool:
        """Whether all images must be attacked together, because the attack finds a perturbation or radius for all."""
        return self.search.runs_once or (self.row.universal and self.fitted_on is None)

    @property
    def shards(self) -> int:
        """Number of shards. An attack that needs all images at once has 1."""
        return 1 if self.needs_all_images else -(-self.subject.images // self.shard_size)

    def shard_slice(self, shard: int) -> range:
        """Return the image indices of a shard."""
        if self.shards == 1:
            return range(self.subject.images)
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.subject.images))

    @property
    def spec(self) -> dict[str, Any]:
        """The fields that identify the run, as JSON types. `key` is their hash, and `from_spec` is the inverse."""
        spec = json.loads(json.dumps(asdict(replace(self.as_planned, implementation=None))))
        del spec["implementation"], spec["asked"], spec["added"]
        spec["subject"] = self.subject.spec
        spec["attack"] = name_in_record(self.attack)
        spec["parameters"] = {name_in_record(name): value for name, value in spec["parameters"].items()}
        return {name: value for name, value in spec.items() if name not in _LATER or value != _LATER[name]}

    @cached_property
    def key(self) -> str:
        """Hash of the spec, 20 hexadecimal digits. It is equal on every machine."""
        return json_digest(self.spec)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "AttackRun":
        """Build a run from its spec.

        Raises:
            KeyError, TypeError, ValueError: if `spec` is not the spec of a run.
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
        """Build a run from the metadata of its record.

        If the attack is not in the catalogue, the implementation is a placeholder, built from the description in the
        record (`about`). No user code is loaded.

        Raises:
            KeyError, TypeError, ValueError: if `meta` is not the metadata of a run's record.
        """
        cell = cls.from_spec(meta["spec"])
        if not isinstance(cell.attack, str):
            return cell
        cell = replace(cell, added=tuple(meta["added"])) if "added" in meta else cell
        if cell.search.kind == "at-saturation" and "saturation" in meta:
            reached = replace(cell.threat_model, epsilon=float(meta["saturation"]["radius"]))
            cell = replace(cell, threat_model=reached, asked=cell.threat_model)
        if all(each in IMPLEMENTATIONS for each in cell.search.members):
            return cell
        return replace(cell, implementation=_stand_in(cell.search, meta.get("about")))


def call_as(cell: AttackRun, names: Mapping[str, tuple[str, str]]) -> AttackRun:
    """Return the run with the display names of its model and its data. `names` comes from `tell_apart`."""
    subject = show_as(cell.subject, names)
    return cell if subject is cell.subject else replace(cell, subject=subject)


def describe_attack(cell: AttackRun) -> dict[str, Any]:
    """Describe the attack of a run as JSON types, for readers of the record who have not installed the attack."""
    try:
        row = cell.row
        attack = canonical_attack(row)
    except UnknownName:
        return {}
    facts = {"library": row.library, "attack": attack.name, "title": attack.title, "source": attack.source}
    facts |= {"kind": attack.kind, "knowledge": attack.knowledge, "variant": variant_in_record(row.variant)}
    facts |= {"canonical": row.canonical} if row.canonical else {}
    return {**facts, "norms": list(row.classes), "random": list(row.random), "universal": row.universal}


def is_foreign(cell: AttackRun) -> bool:
    """Whether the attack of a run is not installed here and known only from the run's record."""
    return cell.implementation is not None and cell.implementation.given is None


def is_single_step(cell: AttackRun) -> bool:
    """Whether the attack of a run makes only one step."""
    return cell.row.canonical_name in SINGLE_STEP or cell.parameters.get("steps") == 1


def is_iterated(cell: AttackRun) -> bool:
    """Whether a run is an iterative white-box attack. Single-step and black-box attacks should not be stronger."""
    if cell.search.sums_up:  # it is as strong as its attacks
        return False
    return cell.knowledge == "white-box" and not is_single_step(cell) and cell.row.canonical_name not in _OTHER_GOALS


def why_not_probed(cell: AttackRun) -> str:
    """Return the reason why a run cannot be repeated on a few images, which some failure indicators need.

    Empty if the run can be repeated.
    """
    if cell.surrogate:
        return "the attack ran on a surrogate; run it on the surrogate as a white-box attack, and check that run"
    if cell.fitted_on is not None:
        return "the attack was fitted on other images"
    return "a worst case over several attacks; run each attack separately" if cell.search.sums_up else ""


def _origin_text(cell: AttackRun) -> str:
    """Return the suffix of a run's title: " via SURROGATE", " fitted on DATA (200)", a combination of these, or ""."""
    via = f" via {ensemble_name([each.model for each in cell.surrogate])}" if cell.surrogate else ""
    row, fit = cell.implementation or IMPLEMENTATIONS.get(cell.search.inside), cell.fitted_on
    if fit.data_digest == cell.subject.data_digest if fit else row is not None and row.universal:
        return f"{via} fitted on the evaluation images"
    return f"{via} fitted on {fit.data} ({fit.images})" if fit and fit.images else via


def _fit_spec(cell: AttackRun) -> dict[str, Any]:
    """Return the fields that `AttackRun.fit_key` hashes: everything that affects the fitted attack."""
    learner = cell.surrogate or (Surrogate(cell.subject.model, cell.subject.model_digest),)
    shared = ("attack", "threat_model", "parameters", "target", "seed", "version", "torch", "device", "fitted_on")
    spec = {name: cell.spec.get(name) for name in shared}
    spec["parameters"] = {name: v for name, v in cell.spec["parameters"].items() if name not in cell.row.searches}
    return {"fitted": [asdict(each) for each in learner], **spec}


def _stand_in(search: Search, about: Any) -> Implementation | None:
    """Build a placeholder for an attack that is not installed, from `about` in its record.

    None if `about` is incomplete.
    """
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
        broken="it is not in this installation's catalogue; only its record describes it",
        described=Attack(texts["attack"], texts["title"], about["kind"], about["knowledge"], texts["source"]),
        canonical=texts["canonical"],
    )
    return row if search.around(row) == search else None


def json_digest(value: Any) -> str:
    """Return a hash of JSON types, 20 hexadecimal digits. The order of keys has no effect."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
