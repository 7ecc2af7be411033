"""Data sets of the Hugging Face Hub, or a local folder of the same form: Parquet or Arrow files with image columns."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InvalidInput, Unavailable
from ..paths import expand_path
from ..user_code_guard import one_line
from .hub_files import download_split
from .hub_parts import PREFIX, select_split, splits_of
from .image_folders import ImageFile, class_indices, interleave_classes

_LABELS = ("label", "labels", "fine_label")
_IMAGES = ("image", "img")


class _DataFile(NamedTuple):
    """A data file with its modification time and size, which reveal whether the file was replaced."""

    path: Path
    stamp: tuple[int, int]


class _Columns(NamedTuple):
    image: str
    label: str
    names: tuple[str, ...]


def list_hub_set(
    name: str, limit: int | None, classes: int | None = None, names: Sequence[str] = (), *, strict: bool = False
) -> list[ImageFile]:
    """List the images of "hf:ORG/NAME[@REVISION][:[CONFIG/]SPLIT]" or "hf:./FOLDER[:SPLIT]".

    The images are interleaved by class if there is a `limit`, and otherwise in the order of the files. A folder has the
    layout of the hub's Parquet files, or that of the package datasets (`to_parquet`, `save_to_disk`).

    Args:
        name: name of the data. Without a split, the test split is used.
        limit: largest number of images.
        classes: number of classes of the model, see `list_folder`.
        names: names of the model's classes, if known, see `list_folder`.
        strict: see `list_folder`.

    Raises:
        Unavailable: if the data set is missing or damaged. The message contains the download command.
        InvalidInput: if there are several splits and the name contains none, or the data have no images with classes.
    """
    files = [_DataFile(path, (path.stat().st_mtime_ns, path.stat().st_size)) for path in _files_of(name)]
    columns = _columns_of(files[0])
    places = [
        (file, group, row) for file in files for group, rows in enumerate(_group_sizes(file)) for row in range(rows)
    ]
    labels = [
        label
        for file in files
        for group, _ in enumerate(_group_sizes(file))
        for label in _read(file, group, columns.label)
    ]
    index_of = _indices_of(columns, labels, classes, names, strict=strict, where=name)
    items = [
        ImageFile(str(number), file.path, index_of(label), partial(_picture, file, group, row, columns.image), number)
        for number, ((file, group, row), label) in enumerate(zip(places, labels, strict=True))
    ]
    if limit is None or limit >= len(items):
        return items
    return interleave_classes(items)[:limit]


def _files_of(name: str) -> list[Path]:
    rest = name.removeprefix(PREFIX)
    place, _, part = (rest, "", "") if ":" not in rest or expand_path(rest).is_dir() else rest.rpartition(":")
    folder = expand_path(place)
    if not folder.is_dir() and not place.startswith((".", "/", "~")):
        return download_split(name, place, part)
    parts = splits_of(path.relative_to(folder).as_posix() for path in folder.rglob("*")) if folder.is_dir() else {}
    if not parts:
        raise Unavailable(f"no Parquet or Arrow files in {folder}")
    return [folder / file for file in parts[select_split([*parts], part, name)]]


def _columns_of(file: _DataFile) -> _Columns:
    """Return the image and label columns, identified by the metadata of the package datasets or by their names."""
    with _opened(file.path) as opened:
        schema = opened.schema_arrow if file.path.suffix == ".parquet" else opened[0].schema
    said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = said.get("info", {}).get("features", {})
    described = {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    kinds = {name: described.get(name, {}).get("_type") for name in schema.names}
    image = _choose_column(schema.names, [name for name, kind in kinds.items() if kind == "Image"], _IMAGES)
    label = _choose_column(schema.names, [name for name, kind in kinds.items() if kind == "ClassLabel"], _LABELS)
    if not image or not label:
        got = ", ".join(schema.names)
        raise InvalidInput(
            f"expected a column of images and one of classes (image and label) in {file.path}, got {got}"
        )
    return _Columns(image, label, tuple(map(str, features.get(label, {}).get("names") or ())))


def _choose_column(names: Sequence[str], of_its_kind: Sequence[str], usual: Sequence[str]) -> str:
    """Return the only column of a kind, otherwise the column with a usual name; "" if there is no such column."""
    if len(of_its_kind) == 1:
        return of_its_kind[0]
    return next((name for name in usual if name in (of_its_kind or names)), "")


def _indices_of(
    columns: _Columns, labels: Sequence[Any], classes: int | None, names: Sequence[str], *, strict: bool, where: str
) -> Callable[[Any], int]:
    """Return the function that converts a label in the files to the model's class index.

    Classes are matched by name if both the files and the model name them.
    """
    if not labels:
        raise InvalidInput(f"no labelled images in {where}")
    more = {"strict": strict, "where": where}
    if all(isinstance(label, str) for label in labels):
        return class_indices(sorted(set(labels)), classes, names, **more).__getitem__
    most = len(columns.names) or None
    for label in set(labels):
        if not isinstance(label, int) or label < 0 or (most is not None and label >= most):
            got = f"{label!r}; the split may have no labels" if label in (None, -1) else repr(label)
            raise InvalidInput(f"expected classes numbered from 0 in the column {columns.label} of {where}, got {got}")
    if most is None:
        return int
    indices = class_indices(columns.names, classes, names, **more)
    return lambda label: indices[columns.names[label]]


def _picture(file: _DataFile, group: int, row: int, column: str) -> bytes:
    value = _read(file, group, column)[row]
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise InvalidInput(
            f"expected images stored in {file.path}, got {'paths of files' if value else 'none'} in {column}"
        )
    return content


@lru_cache(maxsize=64)
def _group_sizes(file: _DataFile) -> tuple[int, ...]:
    """Return the number of rows of each block that can be read separately."""
    with _opened(file.path) as opened:
        if file.path.suffix == ".parquet":
            return tuple(opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups))
        return tuple(batch.num_rows for batch in opened)


@lru_cache(maxsize=4)
def _read(file: _DataFile, group: int, column: str) -> list[Any]:
    """Read a column of one block as Python objects. The last four columns are cached."""
    with _opened(file.path) as opened:
        part = opened.read_row_group(group, columns=[column]) if file.path.suffix == ".parquet" else opened[group]
        return part.column(column).to_pylist()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a Parquet file, or the memory-mapped record batches of an Arrow file. Raises Unavailable if this fails."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        if path.suffix == ".parquet":
            with ParquetFile(path) as opened:
                yield opened
        else:
            with pa.memory_map(str(path)) as mapped:
                yield list(pa.ipc.open_stream(mapped))
    except (OSError, pa.ArrowException) as error:
        raise Unavailable(f"could not read {path} ({one_line(error)}); replace it") from error
