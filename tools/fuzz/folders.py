"""Hypothesis strategies for damaged results folders, and the commands that read them.

The faults are truncated, swapped, foreign and special files, and links in a circle.
"""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from davylamp.engine.store.store import Kind, ResultsStore
from davylamp.tools.fuzz.inputs import LEAVES, Case

READERS = (
    ("status", "results"), ("status", "results", "--json"), ("table", "results", "--bootstrap", "9"),
    ("table", "results", "--by", "models", "--json", "--bootstrap", "9"), ("table", "results", "--by", "pairs",
    "--csv"),
    ("table", "results", "--transfer"), ("table", "results", "--latex"), ("curves", "results", "--bootstrap", "9"),
    ("curves", "results", "--x-axis", "queries", "--json", "--bootstrap", "9"), ("rank", "results", "--method",
    "mean"),
    ("rank", "results", "--subjects", "implementations", "--method", "borda", "--json"), ("rank", "results",
    "--method", "canary"),
    ("check", "results"), ("check", "results", "--json"), ("report", "results", "-o", "page.html", "--bootstrap",
    "9"),
    ("report", "results", "many", "-o", "page.html"), ("evaluate", "run.toml", "--out", "results"),
    ("compare", "fgsm", "--model", "net.py:good", "--data", "npz:results", "--library", "torchattacks"),
    ("compare", "fgsm", "--model", "net.py:good", "--data", "imagefolder:results", "--library", "torchattacks"),
)  # fmt: skip
KINDS: tuple[Kind, ...] = ("cells", "clean")


@st.composite
def folders(draw: st.DrawFn, *, resealed: bool = True) -> Case:
    """Draw a command on a results folder with one to three faults.

    Args:
        draw: Hypothesis' draw function.
        resealed: whether files may also have a correct checksum and content that no version of davylamp writes.
    """
    kinds = [_damage(), _special(), _foreign(), *([_resealed()] if resealed else [])]
    changes = [draw(st.one_of(kinds)) for _ in range(draw(st.integers(1, 3)))]

    def prepare(world: Path) -> None:
        for change in changes:
            change(world / "results")

    return Case(list(draw(st.sampled_from(READERS))), prepare)


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".npz"
    )


@st.composite
def _damage(draw: st.DrawFn) -> Any:
    """Draw a function that damages a file's bytes, replaces it by another file, or deletes it."""
    number, other, kind = (
        draw(st.integers(0, 20)),
        draw(st.integers(0, 20)),
        draw(st.sampled_from(["bytes", "swap", "gone"])),
    )
    cut, byte = draw(st.floats(0, 1)), draw(st.binary(min_size=0, max_size=3))

    def change(folder: Path) -> None:
        files = _files(folder)
        if not files:
            return
        path, second = files[number % len(files)], files[other % len(files)]
        data = path.read_bytes()
        if kind == "bytes":
            place = int(cut * len(data))
            path.write_bytes(data[:place] + byte + (data[place + len(byte) :] if byte else b""))
        elif kind == "swap":
            path.write_bytes(second.read_bytes())
            second.write_bytes(data)
        else:
            path.unlink()

    return change


@st.composite
def _special(draw: st.DrawFn) -> Any:
    """Draw a function that creates something other than a regular file, in place of a file or next to one."""
    number, beside = draw(st.integers(0, 20)), draw(st.booleans())
    kind = draw(st.sampled_from(["fifo", "loop", "folder", "dangling", "null", "zero", "up"]))

    def change(folder: Path) -> None:
        files = _files(folder)
        if not files:
            return
        path = files[number % len(files)]
        if beside:
            path = path.with_stem("0" * 20)
        if path.is_dir() and not path.is_symlink():
            return  # a change before this one has made a folder of it
        path.unlink(missing_ok=True)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir(exist_ok=True)
        else:
            targets = {"loop": path.name, "dangling": "nothing", "null": "/dev/null", "zero": "/dev/zero", "up": ".."}
            path.symlink_to(targets[kind])

    return change


@st.composite
def _foreign(draw: st.DrawFn) -> Any:
    """Draw a function that creates foreign files: other marks, plans, locks and names."""
    name = draw(
        st.sampled_from(
            ["davylamp.json", "plans/a.parquet", "plans/a.json", "locks/a.lock", "cells/.hidden.parquet",
            "cells/\x1b[31m.parquet",
             "cells/x y.parquet", "parts/a-0.parquet", "transfer/a.parquet", "checks/a.parquet", "images/a.npz",
             "cells", "clean"]
        )
    )  # fmt: skip
    data = draw(
        st.sampled_from(
            [b"", b"[]", b"{}", b"null", b'{"format": 1}', b'{"format": 99}', b'{"format": "1"}', b"PAR1", b"\xff\xfe"]
        )
    )

    def change(folder: Path) -> None:
        path = folder / name
        if path.is_dir():
            path.rename(path.with_name(f"{path.name} away {len(list(folder.iterdir()))}"))
        if path.parent.is_dir() or not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    return change


@st.composite
def _resealed(draw: st.DrawFn) -> Any:
    """Draw a function that writes a valid file as another version or program would: different header or columns."""
    kind, number, seed = draw(st.sampled_from(KINDS)), draw(st.integers(0, 20)), draw(st.integers(0, 10**6))
    what = draw(st.sampled_from(["head", "head", "attack", "drop", "empty", "short", "text", "null", "twice"]))
    values = [draw(st.integers(0, 1)), draw(LEAVES)]
    path = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3))

    def change(folder: Path) -> None:
        try:
            store = ResultsStore(folder, create=False)
            keys = store.keys(kind)
            record = store.read(kind, keys[number % len(keys)])
        except Exception:  # a change before this one took it away
            return
        meta, table = json.loads(json.dumps(dict(record.meta))), record.table
        if what == "head":
            _replace(meta, path, values)
        elif what == "attack" and "spec" in meta:
            meta["spec"]["attack"] = "foolbox:attack-of-the-future"
        table = _reshape(table, what, seed)
        store.write(kind, keys[number % len(keys)], table, meta)

    return change


def _replace(value: Any, path: list[int], values: list[Any]) -> None:
    """Remove or replace the value at a path of indices, each modulo the number of entries."""
    for depth, step in enumerate(path):
        if not isinstance(value, (dict, list)) or not value:
            return
        key = sorted(value)[step % len(value)] if isinstance(value, dict) else step % len(value)
        if depth < len(path) - 1 and isinstance(value[key], (dict, list)) and value[key]:
            value = value[key]
        elif values[0]:
            value[key] = values[1]
            return
        else:
            del value[key]
            return


def _reshape(table: pa.Table, what: str, seed: int) -> pa.Table:
    place = seed % table.num_columns
    name = table.column_names[place]
    if what == "drop":
        return table.drop_columns([name])
    if what == "empty":
        return table.slice(0, 0)
    if what == "short":
        return table.slice(0, 1)
    if what == "twice":
        return pa.concat_tables([table, table])
    if what == "text":
        return table.set_column(place, name, pa.array(["\x1b[31m=1+1"] * table.num_rows))
    return table.set_column(place, name, pa.nulls(table.num_rows)) if what == "null" else table
