"""Tensors as columns of a record, and back: the only place where one becomes the other."""

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor

from ...adapters.running.judge import quantise

EXAMPLES = 6  # the first images of the data, kept as pictures with their activation maps
_MAP = pa.list_(pa.list_(pa.float32()))


def column_of_values(values: Tensor) -> pa.Array:
    """A number or a flag for each image, shape (N,)."""
    return pa.array(values.detach().cpu().numpy())


def column_of_logits(logits: Tensor) -> pa.Array:
    """Logits, shape (N, K), as one float32 list of K for each image."""
    flat = logits.detach().float().cpu().contiguous()
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.numpy().reshape(-1)), flat.shape[1])


def logits_of(table: pa.Table, name: str) -> Tensor:
    """What `column_of_logits` was given: shape (N, K), float32."""
    column = table[name].combine_chunks()
    return torch.tensor(column.flatten().to_numpy()).view(len(column), -1)


def column_of_maps(maps: Tensor | None, places: Sequence[int]) -> pa.Array:
    """Activation maps, shape (N, h, w), as nested lists; null for images that are no examples.

    Args:
        maps: None: the model has none.
        places: of the images in the data, N of them; the first `EXAMPLES` are examples.
    """
    if maps is None:
        return pa.nulls(len(places), _MAP)
    kept = np.array([place < EXAMPLES for place in places], bool)
    values = maps.detach().float().cpu().numpy()[kept]
    count, height, width = values.shape
    rows = pa.ListArray.from_arrays(_offsets(np.full(count * height, width)), pa.array(values.reshape(-1)))
    return pa.ListArray.from_arrays(_offsets(np.where(kept, height, 0), ~kept), rows)


def maps_of(table: pa.Table, name: str) -> Tensor | None:
    """What `column_of_maps` was given, shape (N, h, w), float32; None where an image has no map."""
    column = table[name].combine_chunks()
    if column.null_count:
        return None
    rows = column.flatten()
    shape = len(column), len(rows) // max(1, len(column)), -1
    return torch.tensor(rows.flatten().to_numpy().astype(np.float32)).view(shape)


def column_of_pictures(images: Tensor, places: Sequence[int]) -> pa.Array:
    """The first images of the data as PNG files, rounded to 8 bits; null for the others."""
    kept = [picture_of(images[i]) if place < EXAMPLES else None for i, place in enumerate(places)]
    return pa.array(kept, pa.binary())


def columns_of_curves(curves: Sequence[Sequence[tuple[int, float]]]) -> dict[str, pa.Array]:
    """How the distance of each image fell with the passes spent on it: a list of each for every image."""
    passes = [[point[0] for point in curve] for curve in curves]
    distances = [[point[1] for point in curve] for curve in curves]
    return {
        "curve_passes": pa.array(passes, pa.list_(pa.int64())),
        "curve_distances": pa.array(distances, pa.list_(pa.float64())),
    }


def _offsets(sizes: np.ndarray, null: np.ndarray | None = None) -> pa.Array:
    """Where each list begins, and the last one ends; an entry that is null makes its list null."""
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.array(ends, mask=None if null is None else np.append(null, False))


def picture_of(image: Tensor) -> bytes | None:
    """An image, (C, H, W), as a PNG file of 8 bits; None for one of other than 1 or 3 channels."""
    if image.shape[0] not in (1, 3):
        return None
    pixels = (quantise(image.detach().float()) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    file = io.BytesIO()
    picture = Image.fromarray(pixels.squeeze(-1) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    picture.save(file, "PNG", compress_level=1)  # three times as fast as the default, a tenth larger
    return file.getvalue()
