"""Hypothesis strategies for arbitrary inputs: options, TOML, arrays, images.

Each strategy draws a case: the arguments of one command, and a function that creates its files in a copy of the test
folder. Options are read from the commands, so new options are included automatically.
"""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from hypothesis import strategies as st

from davylamp import cli
from davylamp.tools.fuzz.words import COUNTS, FEW, FIRST, HOSTILE, LONG, NEVER, SMALL, SOUND


class Case(NamedTuple):
    """One try: the arguments of the command, and what to change in the folder first."""

    arguments: list[str]
    prepare: Callable[[Path], object]


def _nothing(_: Path) -> None:
    return None


def commands() -> dict[str, click.Command]:
    """Return every command that terminates quickly, by name."""
    group: Any = typer.main.get_command(cli.app)
    return {name: command for name, command in group.commands.items() if name not in LONG}


@st.composite
def options(draw: st.DrawFn) -> Case:
    """Draw a command with some of its options, each with an arbitrary value."""
    name = draw(st.sampled_from(sorted(commands())))
    arguments = [name]
    sound = FIRST.get(name, ()) if draw(st.integers(0, 9)) else (*HOSTILE, None)
    if first := draw(st.sampled_from(sound or (None,))):
        arguments.append(first)
    arguments += SMALL.get(name, ())
    known = [each for each in commands()[name].params if isinstance(each, click.Option) and each.name not in NEVER]
    for option in [draw(st.sampled_from(known)) for _ in range(draw(st.integers(0, 3)) if known else 0)]:
        arguments.append(draw(st.sampled_from(option.opts)))
        if not option.is_flag:
            values = FEW if option.name in COUNTS else HOSTILE
            arguments += [draw(_value(option, values)) for _ in range(option.nargs)]
    if name == "compare" and "--library" not in arguments:
        arguments += ["--library", "foolbox"]
    if name == "evaluate" and "--attacks" not in arguments and not first:
        arguments += ["--attacks", "foolbox:fgsm"]
    if name == "rank" and "--method" not in arguments:
        arguments += ["--method", draw(st.sampled_from(["mean", "borda", "canary"]))]
    return Case(_usable(arguments), _nothing)


def _value(option: click.Option, values: tuple[str, ...]) -> st.SearchStrategy[str]:
    choices = getattr(option.type, "choices", None)
    listed = [str(getattr(choice, "value", choice)) for choice in choices or ()]
    sound = st.sampled_from((*listed, *SOUND.get(option.name or "", ())) or values)
    return sound | sound | st.sampled_from(values)


def _usable(arguments: list[str]) -> list[str]:
    """Return the arguments without characters that an operating system would not pass on."""
    return [argument.replace("\0", "") for argument in arguments]


LEAVES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        3,
        10**18,
        0.5,
        -0.0,
        float("nan"),
        float("inf"),
        "",
        "x",
        "yes",
        "8/255",
        "pgd",
        "linf",
    ]
) | st.sampled_from(
    [[], {}, [[]], [3], [""], ["a"], [None], {"a": 1}, {"attack": 3}, [{"attack": 3}], [{}], [True], ["pgd", 3]]
)


def changed(draw: st.DrawFn, value: Any) -> Any:
    """Draw a copy of a plain value in which one place is replaced, removed, duplicated or extended."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        kind = draw(st.sampled_from(["inside", "inside", "drop", "rename", "add"]))
        kept = {name: item for name, item in value.items() if name != key}
        if kind == "inside":
            return {**value, key: changed(draw, value[key])}
        if kind == "rename":
            return {**kept, draw(st.sampled_from([key.upper(), f"{key}s", "", "é", "a b"])): value[key]}
        return kept if kind == "drop" else {**value, draw(st.sampled_from(["x", "preset", "grid"])): draw(LEAVES)}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        place = draw(st.integers(0, len(value) - 1))
        kind = draw(st.sampled_from(["inside", "drop", "double"]))
        inside = [changed(draw, value[place])] if kind == "inside" else [value[place]] * (2 * (kind == "double"))
        return [*value[:place], *inside, *value[place + 1 :]]
    return draw(LEAVES)


TOML: dict[str, Any] = {
    "models": ["net.py:good"],
    "data": "npz:images.npz",
    "limit": 2,
    "seeds": [0],
    "libraries": ["foolbox"],
    "fixed": False,
    "max_queries": 9,
    "batch_size": 2,
    "eight_bit": True,
    "transfer": "no",
    "keep_images": False,
    "measures": ["effect"],
    "shard_size": 4,
    "device": "cpu",
    "attacks": [
        {"attack": "foolbox:fgsm", "norm": "linf", "epsilon": "8/255", "parameters": {"random_start": False}},
        {"attack": "best(foolbox:fgsm)", "norm": "linf", "grid": {"random_start": [False]}},
    ],
}


@st.composite
def configs(draw: st.DrawFn) -> Case:
    """Draw a TOML file with one or two changes, or with arbitrary bytes, and a command that reads or runs it."""
    import tomli_w

    value: Any = TOML
    for _ in range(draw(st.integers(1, 2))):
        value = changed(draw, value)
    try:
        data = tomli_w.dumps(value).encode()
    except (TypeError, ValueError, AttributeError):  # None is none of TOML's values
        data = draw(st.binary(max_size=40)) + b"\nlimit = 3"
    if not draw(st.integers(0, 5)):
        data = damaged(draw, data)
    words = ["evaluate", "changed.toml", "--out", "out", *(["--print-config"] if draw(st.booleans()) else [])]
    if b"net.py:" not in data or b"npz:" not in data:  # the defaults are a model that takes long
        words += SMALL["evaluate"]
    return Case(words, lambda world: (world / "changed.toml").write_bytes(data))


def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw damaged bytes: truncated, or with some bytes overwritten, inserted or duplicated."""
    kind = draw(st.sampled_from(["cut", "flip", "insert", "double", "nothing"]))
    place = draw(st.integers(0, max(len(data) - 1, 0)))
    if kind == "cut":
        return data[:place]
    if kind == "flip":
        return data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
    if kind == "insert":
        return data[:place] + draw(st.binary(min_size=1, max_size=20)) + data[place:]
    return data + data if kind == "double" else b""


@st.composite
def arrays(draw: st.DrawFn) -> Case:
    """Draw an array file with unusual types, shapes, values and names, a false header, or damaged bytes."""
    count = draw(st.sampled_from([4, 4, 4, 3, 1, 0]))
    shape = draw(
        st.sampled_from(
            [(3, 8, 8), (8, 8, 3), (1, 8, 8), (8, 8), (192,), (), (0, 8, 8), (3, 8, 0), (2, 3, 8, 8), (3, 3, 3)]
        )
    )
    kind = draw(st.sampled_from(["u1", "f4", "f8", "f2", "i8", "u8", "?", "c8", "U3", "O", "M8[s]", "V4", "g", ">f4"]))
    scale = draw(st.sampled_from([1, 1, 255, -1, 1e30, float("nan"), float("inf")]))
    with np.errstate(all="ignore"):
        images = np.random.default_rng(0).random((count, *shape)) * scale
        inputs = images.astype(kind if kind not in ("M8[s]", "V4") else "i8").astype(kind)
    inputs = without_padding(inputs) if kind == "g" else inputs
    labels = draw(
        st.sampled_from(
            [np.array([0, 1, 2, 0]), np.array([0, 1, 2, 99]), np.array([0, 1, 2, -1]), np.array([0, 1, 2, 2**63],
            dtype="u8"),
             np.array([0.0, 1, 2, 0]), np.array([0.5, 1, 2, 0]), np.array([float("nan")] * 4), np.array(["a"] * 4),
             np.array(1),
             np.eye(4), np.array([], dtype="i8"), np.array([None] * 4), np.array([0, 1])]
        )
    )  # fmt: skip
    names = draw(
        st.sampled_from(
            [("inputs", "labels"), ("x", "y"), ("images", "labels"), ("data", "labels"), ("inputs", "targets")]
        )
    )
    stream = io.BytesIO()
    save = draw(st.sampled_from([np.savez, np.savez, np.savez_compressed]))
    save(stream, **{names[0]: inputs, names[1]: labels})
    data = stream.getvalue()
    twist = draw(st.sampled_from(["none", "none", "none", "damage", "encrypt", "claim", "member", "single"]))
    if twist == "damage":
        data = damaged(draw, data)
    elif twist == "encrypt":  # the flag of the central directory and of the members
        data = data.replace(
            b"PK\x01\x02" + data[data.find(b"PK\x01\x02") + 4 :][:4], b"PK\x01\x02\x14\x00\x14\x00\x01\x00"[:8]
        )
        data = data.replace(struct.pack("<4sHH", b"PK\x03\x04", 20, 0), struct.pack("<4sHH", b"PK\x03\x04", 20, 1))
    elif twist == "claim":
        data = data.replace(b"'shape': (4, ", b"'shape': (9999999999, ")
    elif twist == "member":
        data = data.replace(b"labels.npy", b"labels.txt")
    elif twist == "single":
        stream = io.BytesIO()
        np.save(stream, inputs, allow_pickle=True)
        data = stream.getvalue()
    words = ["compare", "fgsm", "--model", "net.py:good", "--data", "npz:changed.npz", "--library", "torchattacks"]
    return Case(words, lambda world: (world / "changed.npz").write_bytes(data))


def without_padding(numbers: np.ndarray) -> np.ndarray:
    """Return long doubles with their padding set to zero, so that a compressed file is the same each time.

    Padding contains arbitrary memory. Hypothesis runs a case twice and reports a flaky strategy if the length of a file
    differs.
    """
    data, size = bytearray(numbers.tobytes()), numbers.itemsize
    for place in range(10, size):  # the number itself has 80 bits
        data[place::size] = bytes(len(data) // size)
    return np.frombuffer(data, numbers.dtype).reshape(numbers.shape)


ROWS = ("0.png,0", "1.png,1", "2.png,2", "3.png," + "9" * 23, "1.png,²", "1.png,-1", "nofile.png,0", "../net.py,0",
",0", "1.png,",
        "1.png", "1.png,0,7", '"1.png', "1.png,0.0", "\x001.png,0", "labels.csv,0", ".,0", "/dev/null,0",
        "1.png, 1", "é.png,0")  # fmt: skip
HEADS = (
    "file,label",
    "label,file",
    "file,label,label",
    "\ufefffile,label",
    "File,Label",
    "file;label",
    "",
    "file",
    "file,label,split",
)


@st.composite
def lists(draw: st.DrawFn) -> Case:
    """Draw a `labels.csv` with arbitrary rows, or a folder of images that also contains other files."""
    rows = draw(st.lists(st.sampled_from(ROWS), max_size=4))
    end = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
    data = end.join([draw(st.sampled_from(HEADS)), *rows]).encode(
        draw(st.sampled_from(["utf-8", "utf-8", "utf-16", "latin-1"])), "replace"
    )
    if not draw(st.integers(0, 4)):
        data = damaged(draw, data)
    words = ["compare", "fgsm", "--model", "net.py:good", "--data", "imagefolder:listed", "--library", "torchattacks"]
    return Case(words, lambda world: (world / "listed" / "labels.csv").write_bytes(data))
