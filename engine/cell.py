"""What is run, stored and resumed: one model, one data set, one implementation, one threat model, one seed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ..adapters import Implementation, ThreatModel, find_implementation

SHARD_SIZE = 64  # images that are attacked, measured and saved at once: what a killed run loses at most


@dataclass(frozen=True)
class Subject:
    """A model on its images: what a cell attacks. The digests are of weights and pixels, so a changed file is new.

    Args:
        model: name of the model.
        model_digest: of its structure, weights and preprocessing.
        data: name of the data.
        data_digest: of pixels and labels.
        images: how many there are.
    """

    model: str
    model_digest: str
    data: str
    data_digest: str
    images: int

    @property
    def spec(self) -> dict[str, Any]:
        """What `key` hashes, as JSON types."""
        return asdict(self)

    @property
    def key(self) -> str:
        """Name of the file with the clean predictions: 20 hexadecimal digits of a hash over the spec."""
        return digest_of({"clean": self.spec})


@dataclass(frozen=True)
class Cell:
    """One implementation against one subject; its records are one file, called by its key.

    Args:
        subject: the model and its images.
        attack: an implementation, "foolbox:pgd", or the best-effort search over its radius, "best(foolbox:pgd)".
        threat_model: norm, epsilon, targeted.
        parameters: canonical parameters, as they are passed on.
        grid: further parameters and the values that a best-effort search tries of each.
        target: rule of the targets, for a targeted threat model.
        seed: of every random choice.
        pixels: success and distances count on images of 8 bits.
        measures: groups of metrics that are stored for each image.
        shard_size: images that are attacked at once.
        version: of the attack's library.
    """

    subject: Subject
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

    @property
    def row(self) -> Implementation:
        """The implementation, also of a best-effort search over it."""
        return find_implementation(strip_best(self.attack))

    @property
    def is_best(self) -> bool:
        """Whether the smallest successful radius of each image is searched for."""
        return self.attack.startswith("best(")

    @property
    def shards(self) -> int:
        """Number of pieces: one for an attack that looks for one perturbation for all images."""
        return 1 if self.row.universal else -(-self.subject.images // self.shard_size)

    def span(self, shard: int) -> range:
        """The images of a shard."""
        if self.shards == 1:
            return range(self.subject.images)
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.subject.images))

    @property
    def spec(self) -> dict[str, Any]:
        """What `key` hashes, as JSON types; `from_spec` reads it back."""
        return json.loads(json.dumps(asdict(self)))

    @cached_property
    def key(self) -> str:
        """20 hexadecimal digits of a hash over the spec: equal on every machine, different if anything is."""
        return digest_of(self.spec)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Cell":
        """The cell that has this spec."""
        own = dict(spec)
        own["subject"] = Subject(**own["subject"])
        own["threat_model"] = ThreatModel(**own["threat_model"])
        own["grid"] = {name: tuple(values) for name, values in own["grid"].items()}
        own["measures"] = tuple(own["measures"])
        return cls(**own)


def strip_best(attack: str) -> str:
    """The implementation's name inside `best(...)`, or the name itself."""
    return attack[5:-1] if attack.startswith("best(") and attack.endswith(")") else attack


def digest_of(value: Any) -> str:
    """20 hexadecimal digits of a hash over JSON types, whatever the order of the keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
