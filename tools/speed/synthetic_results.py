"""Writes a results folder of any size without running an attack, from an item response model.

An image is fooled at a distance that increases with the ability of the model and the image's own robustness, and
decreases with the strength of the attack. The folder has every column of real records, with the types of real records.
"""

import io
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from davylamp.adapters import ThreatModel
from davylamp.adapters.running.judge import RULES
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.cell_defaults import ALL_MEASURES
from davylamp.engine.run.measure import EXAMPLES, measured_symbols
from davylamp.engine.store.store import ResultsStore

ATTACKS = tuple(f"{library}:{name}" for name in ("fgsm", "pgd", "deepfool", "cw") for library in ("art", "foolbox"))
ATTACKS += tuple(f"torchattacks:{name}" for name in ("fgsm", "pgd", "deepfool", "cw"))
Head = Mapping[str, Any]
# Of a leaderboard such as RobustBench's: AutoAttack's four, and PGD.
STANDARD = tuple(f"torchattacks:{name}" for name in ("apgd-ce", "apgd-dlr", "fab", "square", "pgd"))
# As many as CANARY has.
TWENTY = (
    *ATTACKS,
    *(f"{library}:{name}" for name in ("bim", "mi-fgsm") for library in ("art", "foolbox", "torchattacks")),
    *("foolbox:newtonfool", "torchattacks:jsma"),
)
_MINIMUM = ("deepfool", "cw", "fab", "newtonfool", "jsma")
_STRENGTH: Mapping[str, float] = {"fgsm": 0.0, "square": 0.3, "pgd": 0.7, "deepfool": 0.5, "cw": 0.8}
_POOL = 24  # different pictures and maps in a folder; records share them
_ABILITIES = 2.0  # between the weakest model and the strongest, as deviations of an image's toughness


def write_results(  # noqa: PLR0913 - what is read by position, the choices by keyword
    folder: str | Path,
    *,
    models: Sequence[str] = ("model-a", "model-b", "model-c"),
    attacks: Sequence[str] = ATTACKS,
    images: int = 1000,
    classes: int = 1000,
    image: str = "image",
    side: int = 224,
    pooled: bool = False,
    seed: int = 0,
) -> ResultsStore:
    """Fill a results folder with synthetic records.

    Args:
        folder: results folder.
        models: names of the models. Each is slightly more robust than the one before. Every image is fooled on some
            model.
        attacks: names of implementations in the catalogue.
        images: number of images.
        classes: number of classes.
        image: prefix of the image names.
        side: side of the pictures, pixels.
        pooled: whether all records share a few pictures and maps, which is faster.
        seed: random seed.

    Returns:
        The store.
    """
    store, generator = ResultsStore(folder), np.random.default_rng(seed)
    toughness, labels = generator.normal(size=images), generator.integers(classes, size=images)
    head = {"index": np.arange(images), "image": [f"{image}-{n:04d}.png" for n in range(images)], "label": labels}
    step, shown = min(0.5, _ABILITIES / len(models)), _Shown(side, generator, pooled=pooled)
    for place, model in enumerate(models):
        subject = ModelOnData(model, f"{place:020d}", "synthetic", "0" * 20, images)
        predicted = np.where(generator.random(images) < 0.9, labels, (labels + 1) % classes)
        store.write("clean", subject.key, _clean(head, predicted, classes, generator, shown), _meta(subject, "clean"))
        for attack in attacks:
            name = attack.partition(":")[2]
            threat_model = ThreatModel("l2") if name in _MINIMUM else ThreatModel("linf", 4 / 255)
            cell = AttackRun(
                subject, attack, threat_model, {"steps": 10}, measures=ALL_MEASURES, version="1.0", rules=RULES
            )
            reach = toughness + step * place - _STRENGTH.get(name, 0.5) + 0.3 * generator.normal(size=images)
            table = _attacked(cell, reach, head, predicted, classes, generator, shown)
            meta = _meta(subject, "attack") | {"key": cell.key, "spec": cell.spec}
            store.write("cells", cell.key, table, meta)
    return store


class _Shown:
    """Pictures and maps of the first images: drawn for each record, or a few that are used in turns."""

    def __init__(self, side: int, generator: np.random.Generator, *, pooled: bool):
        self.side, self.generator, self.place = side, generator, 0
        self.pool = [(self._map(), _picture(generator, side)) for _ in range(_POOL)] if pooled else []

    def columns(self, count: int, prefix: str) -> dict[str, pa.Array]:
        """Return the columns of pictures. Null for images that are not examples."""
        shown = min(count, EXAMPLES)
        if self.pool:
            pairs = [self.pool[(self.place + place) % _POOL] for place in range(shown)]
            maps, pictures = ([pair[place] for pair in pairs] for place in (0, 1))
            self.place += shown
        else:
            maps = [self._map() for _ in range(shown)]
            pictures = [_picture(self.generator, self.side) for _ in range(shown)]
        rest = [None] * (count - shown)
        return {
            f"{prefix}cam": pa.array([*maps, *rest], pa.list_(pa.list_(pa.float32()))),
            f"{prefix}picture": pa.array([*pictures, *rest], pa.binary()),
        }

    def _map(self) -> list[list[float]]:
        return self.generator.random((7, 7)).tolist()


def _clean(head: Head, predicted: np.ndarray, classes: int, generator: np.random.Generator, shown: _Shown) -> pa.Table:
    right = predicted == head["label"]
    return pa.table(
        {
            **head,
            "predicted": predicted,
            "CA": right.astype(float),
            "CC": np.where(right, 0.8, 0.1),
            "logits": _logits(predicted, classes, generator),
            **shown.columns(len(right), ""),
        }
    )


def _attacked(
    cell: AttackRun,
    reach: np.ndarray,
    head: Head,
    predicted: np.ndarray,
    classes: int,
    generator: np.random.Generator,
    shown: _Shown,
) -> pa.Table:
    labels = head["label"]
    count, attacked = len(labels), predicted == labels
    radius = cell.threat_model.epsilon
    # On the sphere, a rounding beyond it: examples are float32.
    distance = np.exp(reach / 2) if radius is None else np.full(count, float(np.float32(radius)))
    success = attacked & ((reach < 0.5) if cell.threat_model.epsilon is not None else (reach < 2))
    adv_predicted = np.where(success, (labels + 3) % classes, predicted)
    of_success = np.where(success, distance, math.nan)
    columns: dict[str, Any] = {
        **head,
        "target": pa.nulls(count, pa.int64()),
        "attacked": attacked,
        "success": success,
        "success_8bit": success,
        "violated": np.zeros(count, bool),
        "robust": attacked & ~success,
        "violations": [""] * count,
        "predicted": predicted,
        "adv_predicted": adv_predicted,
        "forwards": generator.integers(10, 60, count),
        "backwards": generator.integers(10, 20, count),
        "seconds": generator.gamma(2, 0.05, count),
        "distance": np.where(attacked, np.where(success, distance, math.inf), 0.0),
        "R8": np.where(success, 1.0, math.nan),
    }
    for name in ("l0", "l1", "l2", "linf"):
        columns[name] = columns[f"{name}_8bit"] = of_success
    for symbol in measured_symbols(cell.measures):
        columns[symbol] = np.where(attacked, generator.random(count), math.nan)
    columns["MR"] = np.where(attacked, success.astype(float), math.nan)
    columns["adv_logits"] = _logits(adv_predicted, classes, generator)
    columns |= shown.columns(count, "adv_")
    return pa.table(columns)


def _logits(predicted: np.ndarray, classes: int, generator: np.random.Generator) -> pa.Array:
    logits = generator.normal(size=(len(predicted), classes)).astype(np.float32)
    logits[np.arange(len(predicted)), predicted] += 8
    return pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), classes)


def _picture(generator: np.random.Generator, side: int) -> bytes:
    """Draw a picture of coarse patches with noise."""
    patch = -(-side // 8)
    patches = generator.integers(0, 200, (8, 8, 3)).repeat(patch, 0).repeat(patch, 1)[:side, :side]
    pixels, file = (patches + generator.integers(0, 55, patches.shape)).astype(np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _meta(subject: ModelOnData, kind: str) -> dict[str, Any]:
    return {
        "key": subject.key,
        "subject": subject.spec,
        "kind": kind,
        "status": "done",
        "reason": "",
        "unmeasured": {},
        "seconds": 60.0,
        "attack_seconds": 50.0,
        "device": "cpu",
        "python": "3.11.0",
        "platform": "x86_64",
        "versions": {name: version(name) for name in ("torch", "numpy")},
        "preset": "",
        "written": "2025-01-01T00:00:00+00:00",
    }
