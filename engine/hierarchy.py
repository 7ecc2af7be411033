"""Reads class hierarchies from files, and computes the similarity of classes from a hierarchy."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ..adapters.paths import expand_path
from ..errors import InvalidInput, Unavailable
from ..metrics import wup_from_paths

_ROOT = "all classes"
_LARGEST = 1 << 24  # bytes
_SHOWN = 10  # classes


def similarity_of_file(path: str | Path, classes: int) -> Tensor:
    """Compute the Wu-Palmer similarity of every two classes from a hierarchy in a file.

    A JSON file has nested groups with lists of classes as leaves: {"animal": {"pet": ["cat", "dog"]}, "vehicle":
    ["car"]}. A CSV file has a line `child,parent` for each class and each group, with an optional heading
    "child,parent". The classes are the leaves. If the class names are the numbers 0, 1, ..., the classes are ordered by
    number, otherwise as in the file. If there are several top groups, a common root is added.

    Args:
        path: path of the file, .json or .csv.
        classes: number of classes of the model.

    Returns:
        Shape (classes, classes), float64, in (0, 1].

    Raises:
        Unavailable: if there is no such file.
        InvalidInput: if the file is not a hierarchy with this number of classes.
    """
    file = expand_path(path)
    paths = read_hierarchy(file)
    if len(paths) != classes:
        raise InvalidInput(f"expected {classes} classes in the hierarchy {path}, got {len(paths)}")
    try:
        return wup_from_paths(paths)
    except ValueError as error:
        raise InvalidInput(f"{path}: {error}") from error


def read_hierarchy(file: Path) -> list[tuple[str, ...]]:
    """Read a hierarchy of classes from a file.

    Returns:
        The path from the root to each class, as names of nodes, in the order of the classes.

    Raises:
        Unavailable: if there is no such file.
        InvalidInput: if the file does not contain a hierarchy.
    """
    try:
        if file.stat().st_size > _LARGEST:
            raise InvalidInput(f"expected a hierarchy of at most 16 MiB, but the file {file} is larger")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"cannot read the hierarchy {file} ({error})") from error
    if file.suffix.lower() not in (".json", ".csv"):
        raise InvalidInput(f"expected a hierarchy in a .json or .csv file, got {file}")
    try:
        paths = list(
            _leaves_of(json.loads(text), (_ROOT,), str(file))
            if file.suffix.lower() == ".json"
            else _paths_of(text, file)
        )
    except (json.JSONDecodeError, csv.Error, RecursionError) as error:
        raise InvalidInput(f"could not read a hierarchy from {file}: {str(error)[:100]}") from error
    names = [path[-1] for path in paths]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None or not paths:
        raise InvalidInput(f"expected each class once in {file}, got {f'{twice!r} twice' if twice else 'no classes'}")
    if not all(name.isdecimal() for name in names):
        return paths
    numbers = sorted(map(int, names))
    if numbers != list(range(len(names))):
        lacking = next(number for number in range(len(names)) if number not in numbers)
        raise InvalidInput(f"expected the classes 0 to {len(names) - 1} in {file}, but {lacking} is missing")
    return sorted(paths, key=lambda path: int(path[-1]))


def check_order(path: str, names: Sequence[str]) -> str:
    """Check that the classes of a hierarchy have the same order as the classes of the model.

    Args:
        path: path of the file.
        names: names of the model's classes, in the model's order; empty if unknown.

    Returns:
        A note if the names of the classes are unknown, so that the order cannot be checked. Otherwise "".

    Raises:
        InvalidInput: if the order differs, or the file does not contain a hierarchy.
        Unavailable: if the file cannot be read.
    """
    leaves = [each[-1] for each in read_hierarchy(expand_path(path))]
    if all(name.isdecimal() for name in leaves):
        return ""
    for place, (leaf, name) in enumerate(zip(leaves, names, strict=False)):
        if leaf != name:
            got = f"{leaf!r} where the model has {name!r} (class {place})"
            advice = "name the classes by their numbers, or order the lines of a CSV file like the model's classes"
            raise InvalidInput(f"expected the classes of {path} in the model's order, got {got}; {advice}")
    shown = ", ".join(f"{place} {leaf}" for place, leaf in enumerate(leaves[:_SHOWN]))
    more = ", ..." if len(leaves) > _SHOWN else ""
    return (
        ""
        if names
        else (
            f"{path}: the model has no class names, so its classes are assumed to be in the order of the file: "
            f"{shown}{more}"
        )
    )


def _leaves_of(node: Any, above: tuple[str, ...], file: str) -> Iterator[tuple[str, ...]]:
    if isinstance(node, Mapping) and node:
        for name, below in node.items():
            # A group is identified by its path: equal names in two places are two groups, and neither is a class.
            yield from _leaves_of(below, (*above, f"{above[-1] if above[1:] else ''}/{name}"), file)
    elif isinstance(node, list) and node:
        for leaf in node:
            if isinstance(leaf, Mapping | list):
                yield from _leaves_of(leaf, above, file)
            else:
                yield (*above, str(leaf))
    else:
        raise InvalidInput(f"expected groups with lists of classes in {file}, got {str(node)[:60]!r} below {above[-1]}")


def _paths_of(text: str, file: Path) -> Iterator[tuple[str, ...]]:
    parents: dict[str, str] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and cells == ["child", "parent"]):
            continue
        if len(cells) != 2 or not cells[0]:
            raise InvalidInput(f"expected child,parent in line {number} of {file}, got {','.join(cells)[:60]!r}")
        if cells[0] in parents:
            raise InvalidInput(f"expected one parent of {cells[0]!r}, got a second one in line {number} of {file}")
        parents[cells[0]] = cells[1]
    groups, seen = set(parents.values()), set[str]()
    for leaf in (child for child in parents if child not in groups):
        path = [leaf]
        while parents.get(path[-1]):
            path.append(parents[path[-1]])
            if len(path) > len(parents) + 1:
                raise InvalidInput(f"expected a hierarchy without cycles in {file}, got a cycle above {leaf!r}")
        seen.update(path)
        yield (_ROOT, *reversed(path))
    lost = next((child for child in parents if child not in seen), None)
    if lost is not None:
        raise InvalidInput(f"expected a hierarchy without cycles in {file}, got a cycle above {lost!r}")
