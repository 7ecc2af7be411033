"""Semantic similarity of classes by their positions in WordNet (Wu and Palmer)."""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .common import check_choice

Nodes = np.ndarray


def imagenet_wup(sense: Literal["class", "first"] = "class") -> Tensor:
    """Wu-Palmer similarity of the 1000 ImageNet classes, in the usual order of the classes.

    By default, a class is represented by the synset of its WordNet id and the shortest hypernym path in WordNet 3.0.
    Mopuri et al. used the first sense of the class name, which is a different synset for 209 classes. For example, the
    similarity of coral and jackfruit is 0.19 by synset and 0.46 by first sense.

    Args:
        sense: "class" selects the synset of the class. "first" selects the first noun sense of the first class name,
            and the hypernym paths that make two synsets most similar, as Mopuri et al. did.

    Returns:
        Similarities, shape (1000, 1000), float64, in (0, 1], 1 on the diagonal. For "first", different classes with the
        same first sense also have similarity 1.

    Raises:
        ValueError: if `sense` is unknown.
    """
    check_choice("sense", sense, ("class", "first"))
    if sense == "first":
        return first_sense_similarity().clone()
    with np.load(Path(__file__).parent / "data" / "imagenet_paths.npz") as stored:
        return _similarity(stored["nodes"])


@lru_cache(maxsize=1)
def first_sense_similarity() -> Tensor:
    """Return the similarity of the ImageNet classes by first senses (see `imagenet_wup`), shape (1000, 1000)."""
    with np.load(Path(__file__).parent / "data" / "imagenet_first_senses.npz") as stored:
        pairs, owner = _similarity(stored["nodes"]).numpy(), stored["owner"]  # of each path, its class, in order
    starts = np.flatnonzero(np.diff(owner.astype(int), prepend=-1))
    return torch.from_numpy(np.maximum.reduceat(np.maximum.reduceat(pairs, starts, axis=0), starts, axis=1))


def wup_from_paths(paths: Sequence[Sequence[Hashable]]) -> Tensor:
    """Wu-Palmer similarity of classes: twice the depth of the last common node, divided by the sum of the depths.

    Args:
        paths: path of each of K classes: the nodes from the root (depth 1) down to the class itself. A node must have
            the same depth in all paths, as in a tree or on shortest paths.

    Returns:
        Similarities, shape (K, K), float64, in (0, 1], 1 for equal classes.

    Raises:
        ValueError: if there is no path, the roots differ or a node has two depths.
    """
    if not paths or not all(paths):
        raise ValueError("expected at least one path, and at least one node in each path, got none")
    if len({path[0] for path in paths}) > 1:
        raise ValueError(f"expected all paths to begin at the same root, got {len({path[0] for path in paths})} roots")
    depths: dict[Hashable, int] = {}
    numbers: dict[Hashable, int] = {}
    nodes = np.zeros((len(paths), max(map(len, paths))), np.int64)
    for row, path in enumerate(paths):
        for depth, node in enumerate(path):
            if depths.setdefault(node, depth) != depth:
                raise ValueError(f"expected one depth for node {node!r}, got {depths[node] + 1} and {depth + 1}")
            nodes[row, depth] = numbers.setdefault(node, len(numbers) + 1)
    return _similarity(nodes)


def _similarity(nodes: Nodes) -> Tensor:
    """Return the Wu-Palmer similarity of classes, from one path of nodes per row.

    A path begins at the root and is padded with 0.
    """
    common = np.ones((len(nodes), len(nodes)), np.uint8)
    for depth, column in enumerate(nodes.T[1:], start=2):
        order = np.argsort(column, kind="stable")
        starts = np.flatnonzero(np.diff(column[order], prepend=0))
        for below in np.split(order, starts)[1:]:
            common[below[:, None], below] = depth
    lengths = np.count_nonzero(nodes, axis=1)
    return torch.from_numpy(2 * common.astype(np.float64) / (lengths[:, None] + lengths))
