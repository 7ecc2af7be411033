"""Converts tensors, images and coverage bits to columns of a record, and back."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor

from ...adapters.running.judge import quantise
from ..attack_run import AttackRun
from .checksummed import Record
from .store import ResultsStore

EXAMPLES = 6  # first images of the data, stored as pictures with their activation maps
_MAP = pa.list_(pa.list_(pa.float32()))
COVERAGE_BITS = ("coverage", "coverage_clean", "coverage_layers", "coverage_sizes")  # in a shard's first row


def column_of_values(values: Tensor) -> pa.Array:
    """Convert one number or flag per image, shape (N,), to a column."""
    return pa.array(values.detach().cpu().numpy())


def column_of_logits(logits: Tensor) -> pa.Array:
    """Convert logits, shape (N, K), to a column with a list of K float32 numbers for each image."""
    flat = logits.detach().float().cpu().contiguous()
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.numpy().reshape(-1)), flat.shape[1])


def logits_of(table: pa.Table, name: str) -> Tensor:
    """Read a column of logits that `column_of_logits` made, shape (N, K), float32."""
    column = table[name].combine_chunks()
    return torch.tensor(column.flatten().to_numpy()).view(len(column), -1)


def column_of_maps(maps: Tensor | None, places: Sequence[int]) -> pa.Array:
    """Convert activation maps, shape (N, h, w), to a column of nested lists.

    Maps are stored only for the first `EXAMPLES` images of the data. All other images get null.

    Args:
        maps: maps of all N images, or only of the images whose maps are stored. None if the model has no maps.
        places: indices of the N images in the data, ascending.
    """
    if maps is None:
        return pa.nulls(len(places), _MAP)
    kept = np.array([place < EXAMPLES for place in places], bool)
    values = maps[: int(kept.sum())].detach().float().cpu().numpy()
    count, height, width = values.shape
    rows = pa.ListArray.from_arrays(_offsets(np.full(count * height, width)), pa.array(values.reshape(-1)))
    return pa.ListArray.from_arrays(_offsets(np.where(kept, height, 0), ~kept), rows)


def column_of_pictures(images: Tensor, places: Sequence[int]) -> pa.Array:
    """Convert the first `EXAMPLES` images of the data to a column of PNG files, rounded to 8 bits.

    All others get null.
    """
    kept = [picture_of(images[i]) if place < EXAMPLES else None for i, place in enumerate(places)]
    return pa.array(kept, pa.binary())


def columns_of_curves(curves: Sequence[Sequence[tuple[int, float]]]) -> dict[str, pa.Array]:
    """Convert curves of distance against queries to two columns, each with a list for each image."""
    passes = [[point[0] for point in curve] for curve in curves]
    distances = [[point[1] for point in curve] for curve in curves]
    return {
        "curve_passes": pa.array(passes, pa.list_(pa.int64())),
        "curve_distances": pa.array(distances, pa.list_(pa.float64())),
    }


def _offsets(sizes: np.ndarray, null: np.ndarray | None = None) -> pa.Array:
    """Return the offsets of the lists in an Arrow column, including the end of the last list.

    Args:
        sizes: length of each list.
        null: whether each entry is null instead of a list. None for no null entries.
    """
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.array(ends, mask=None if null is None else np.append(null, False))


def picture_of(image: Tensor) -> bytes | None:
    """Convert an image, (C, H, W), to an 8-bit PNG file. None unless the image has 1 or 3 channels."""
    if image.shape[0] not in (1, 3):
        return None
    pixels = (quantise(image.detach().float()) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    file = io.BytesIO()
    picture = Image.fromarray(pixels.squeeze(-1) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    picture.save(file, "PNG", compress_level=1)  # three times as fast as the default, a tenth larger
    return file.getvalue()


def compact_images(images: Tensor) -> np.ndarray:
    """Convert images to uint8 if this is lossless, because every value is a multiple of 1/255.

    Otherwise return them unchanged.
    """
    pixels = images.detach().cpu()
    grid = (pixels * 255).round()
    if torch.equal(grid / 255, pixels):
        return grid.to(torch.uint8).numpy()
    return pixels.numpy()


def restore_images(stored: np.ndarray) -> Tensor:
    """Convert the result of `compact_images` back to images, float32, in [0, 1]."""
    images = torch.from_numpy(stored)
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def read_examples(store: ResultsStore, cell: AttackRun) -> Tensor:
    """Read the stored examples of a finished run.

    Returns:
        The examples, shape (N, C, H, W), float32, in [0, 1].

    Raises:
        Unavailable: if a shard cannot be read.
    """
    return torch.cat([restore_images(store.read_images(f"{cell.key}-{shard}")) for shard in range(cell.shards)])


@dataclass(frozen=True)
class Example:
    """Picture of a clean or adversarial image: PNG bytes, activation map (h, w), confidence in class `predicted`."""

    place: int
    image: str
    label: int
    predicted: int
    picture: bytes | None
    cam: np.ndarray | None
    confidence: float


def pictures_of(record: Record, prefix: Literal["", "adv_"], *, confidences: bool = True) -> tuple[Example, ...]:
    """Return the images of a record that have a picture. Empty for records of davylamp 0.1.0.

    Args:
        record: record with its pictures and maps.
        prefix: prefix of the columns: "adv_" for a run, "" for clean predictions.
        confidences: whether the model returns confidences. If False, the confidence is NaN.
    """
    table = record.table
    if not {f"{prefix}picture", f"{prefix}cam"} <= set(table.column_names):
        return ()
    shown = table[f"{prefix}picture"].is_valid().to_numpy()
    if not shown.any():
        return ()
    part = table.filter(shown)
    probabilities = _logits_of_rows(record, f"{prefix}logits", np.flatnonzero(shown)).softmax(1)
    columns = {name: part[name].to_pylist() for name in ("index", "image", "label")}
    columns |= {name: part[prefix + name].to_pylist() for name in ("predicted", "picture", "cam")}
    return tuple(
        Example(
            place=columns["index"][row],
            image=columns["image"][row],
            label=columns["label"][row],
            predicted=columns["predicted"][row],
            picture=columns["picture"][row],
            cam=None if columns["cam"][row] is None else np.asarray(columns["cam"][row], np.float32),
            confidence=float(probabilities[row, columns["predicted"][row]]) if confidences else math.nan,
        )
        for row in range(len(part))
    )


def _logits_of_rows(record: Record, name: str, places: np.ndarray) -> Tensor:
    """Read the logits of some rows, (n, K). If the column is not in memory, it is read up to the last of these rows."""
    if name in record.table.column_names:
        return logits_of(record.table.take(places), name)
    assert record.more is not None
    return logits_of(record.more([name], int(places[-1]) + 1).take(places), name)


class Reached(NamedTuple):
    """Coverage of one layer by a set of images: which neurons, and which sections of the neurons' ranges, are covered.

    `sections` has the shape (units, sections), bool. All other fields have the shape (units,), bool.
    """

    sections: np.ndarray
    above: np.ndarray
    below: np.ndarray
    most_active: np.ndarray

    def united(self, other: "Reached") -> "Reached":
        """Return the union of the coverage of two sets of images."""
        return Reached(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))


Coverage = Mapping[str, Reached]  # by layer


def pack(coverage: Coverage) -> bytes:
    """Pack the coverage of all layers into bits, layer by layer."""
    flat = [part.reshape(-1) for reached in coverage.values() for part in reached]
    return np.packbits(np.concatenate(flat)).tobytes() if flat else b""


def unpack(data: bytes, layers: Sequence[str], sizes: Sequence[int]) -> dict[str, Reached]:
    """Convert the bits that `pack` made back to coverage.

    Args:
        data: the bits.
        layers: names of the layers.
        sizes: the number of sections, followed by the number of neurons of each layer.

    Raises:
        ValueError: if the sizes do not match the bits.
    """
    sections, *units = map(int, sizes)
    bits = np.unpackbits(np.frombuffer(data, np.uint8)).astype(bool)
    whole = sum(units) * (sections + 3)
    if len(units) != len(layers) or not whole <= len(bits) < whole + 8:
        raise ValueError(f"expected {whole} bits for {len(layers)} layers, got {len(bits)} bits for {len(units)}")
    coverage, start = {}, 0
    for name, count in zip(layers, units, strict=True):
        ends = np.cumsum([count * sections, count, count, count]) + start
        parts = np.split(bits[start : ends[-1]], ends[:-1] - start)
        coverage[name] = Reached(parts[0].reshape(count, sections), *parts[1:])
        start = int(ends[-1])
    return coverage


def coverage_of(columns: Mapping[str, np.ndarray], *, clean: bool) -> dict[str, Reached] | None:
    """Return the coverage by all images of a run.

    Args:
        columns: columns of the run's record.
        clean: whether to return the coverage before the attack instead of after it.

    Returns:
        The coverage of each layer. None if it was not measured.
    """
    if not set(COVERAGE_BITS) <= set(columns):
        return None
    united: dict[str, Reached] = {}
    first = "coverage_clean" if clean else "coverage"
    rows = zip(*(columns[name] for name in (first, "coverage_layers", "coverage_sizes")), strict=True)
    for data, layers, sizes in rows:
        if data is None:
            continue
        for name, reached in unpack(data, list(layers), list(sizes)).items():
            united[name] = united[name].united(reached) if name in united else reached
    return united or None


def coverage_values(coverage: Coverage, layer: str = "") -> dict[str, float]:
    """Compute KMNCov, NBCov, SNACov and TKNCov, see `metrics.coverage`.

    Args:
        coverage: coverage of each layer.
        layer: the layer to which the values refer. "" for all layers together.
    """
    chosen: list[Any] = [coverage[layer]] if layer else list(coverage.values())
    sections, above, below, active = (
        np.concatenate([each[place].reshape(-1) for each in chosen]) for place in range(4)
    )
    return {
        "KMNCov": float(sections.mean()),
        "NBCov": float((above.mean() + below.mean()) / 2),
        "SNACov": float(above.mean()),
        "TKNCov": float(active.mean()),
    }
