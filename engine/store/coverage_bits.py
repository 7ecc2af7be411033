"""Which neurons a set of images reaches, as bits: what a record keeps of it, and the four coverages of that."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

COLUMNS = ("coverage", "coverage_clean", "coverage_layers", "coverage_sizes")  # beside a shard's first image


class Reached(NamedTuple):
    """What a set of images reaches in a layer, bool: (units, sections), and (units,) each."""

    sections: np.ndarray
    above: np.ndarray
    below: np.ndarray
    most_active: np.ndarray

    def united(self, other: "Reached") -> "Reached":
        """What both sets reach together."""
        return Reached(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))


Coverage = Mapping[str, Reached]  # by layer


def pack(coverage: Coverage) -> bytes:
    """All bits, layer after layer."""
    flat = [part.reshape(-1) for reached in coverage.values() for part in reached]
    return np.packbits(np.concatenate(flat)).tobytes() if flat else b""


def unpack(data: bytes, layers: Sequence[str], sizes: Sequence[int]) -> dict[str, Reached]:
    """What `pack` was given.

    Args:
        data: the bits.
        layers: names.
        sizes: the number of sections, then the neurons of each layer.

    Raises:
        ValueError: if they do not fit.
    """
    sections, *units = map(int, sizes)
    bits = np.unpackbits(np.frombuffer(data, np.uint8)).astype(bool)
    whole = sum(units) * (sections + 3)
    if len(units) != len(layers) or not whole <= len(bits) < whole + 8:
        raise ValueError(f"expected {whole} bits of {len(layers)} layers, got {len(bits)} of {len(units)}")
    coverage, start = {}, 0
    for name, count in zip(layers, units, strict=True):
        ends = np.cumsum([count * sections, count, count, count]) + start
        parts = np.split(bits[start : ends[-1]], ends[:-1] - start)
        coverage[name] = Reached(parts[0].reshape(count, sections), *parts[1:])
        start = int(ends[-1])
    return coverage


def coverage_of(columns: Mapping[str, np.ndarray], *, clean: bool) -> dict[str, Reached] | None:
    """What the images of a cell reach together, before the attack or after it; None if it was not measured."""
    if not set(COLUMNS) <= set(columns):
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
    """KMNCov, NBCov, SNACov and TKNCov of all layers together, or of one; see `metrics.coverage`."""
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
