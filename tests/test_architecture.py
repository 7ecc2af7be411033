"""Imports point one way between parts and between the rooms of a part, read from the source; nothing heavy is loaded
before it is used; one name means one thing."""

import ast
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .conftest import NIGHTLY

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "metrics": set(),
    "scoring": {"conventions", "intervals"},
    "errors": set(),
    "intervals": set(),
    "conventions": set(),
    "memory": set(),
    "adapters": {"conventions", "errors", "intervals", "memory"},
    "engine": {"metrics", "adapters", "conventions", "errors", "intervals", "memory"},
    "report": {"engine", "scoring", "metrics", "adapters", "errors", "intervals"},
    "benchmarks": {"metrics", "adapters", "scoring", "engine", "report", "errors"},
    "commands": {
        *("metrics", "adapters", "scoring", "engine", "report", "benchmarks", "api", "server"),
        "errors",
    },
    "server": {"adapters", "scoring", "engine", "report", "conventions", "errors", "intervals", "memory"},
    "testing": {"adapters", "api", "errors"},
    "api": {"metrics", "adapters", "scoring", "engine", "report", "benchmarks", "errors", "memory"},
    "cli": {"commands", "errors", "memory"},
    # Not in the wheel, and imported by nothing in it.
    "tools": {
        *("metrics", "adapters", "scoring", "engine", "report", "server", "benchmarks", "commands", "cli"),
        *("errors", "intervals", "memory"),
    },
}
# A room is a folder of a part; "" holds the modules that lie at the root of the part. What a room may import:
ROOMS = {
    "adapters": {
        "": set(),
        "models": {""},
        "data": {"", "models"},
        "libraries": {"", "models"},
        "catalogue": {"", "libraries"},
        "running": {"", "models", "catalogue"},
        "contract": {"", "models", "catalogue", "running"},
    },
    "engine": {
        "": {"searches"},
        "searches": set(),
        "statistics": set(),
        "store": {"", "statistics"},
        "plan": {"", "searches"},
        "probes": {"", "statistics", "store"},
        "tables": {"", "statistics", "store"},
        "exchange": {"", "store", "tables", "checks"},
        "sharing": {"", "store"},
        "checks": {"", "statistics", "store", "tables"},
        "run": {"", "store", "searches", "plan", "probes"},
        "sequential": {"", "statistics", "store", "plan", "run", "checks", "tables"},
        "comparison": {"", "store", "searches", "plan", "run", "checks"},
        "training": {"", "store"},
        "detection": {"", "statistics", "store", "training"},
        "challenge": {"", "statistics", "store", "plan", "run", "probes", "checks", "tables", "sequential"},
    },
    "report": {
        "": set(),
        "citations": set(),
        "figures": set(),
        "text": {"citations"},
        "parts": {"text"},
        "sections": {"parts"},
        "page": {"parts", "sections", "text"},
    },
    "server": {
        "": {"database"},
        "database": set(),
        "accounts": {"database"},
        "components": {"", "database", "accounts"},
        "tasks": {"", "database", "accounts", "components"},
        "web": {"", "database", "accounts", "components", "tasks"},
        "client": set(),
    },
}
# Folders whose modules are of one kind, named by what they are about: the same name may stand in several.
COLLECTIONS = ("commands", "report/sections", "report/text", "benchmarks/", "tools/", "adapters/libraries/")
HEAVY = (
    "adv_lib",
    "art",
    "cleverhans",
    "foolbox",
    "pyautoattack",
    "secmlt",
    "torchattack",
    "torchattacks",
    "ray",
    "pyro",
    "timm",
    "onnx",
    "onnxruntime",
    "onnx2pytorch",
    "transformers",
)

Files = dict[str, str]
parse = cache(ast.parse)


def modules_imported(name: str, source: str) -> set[str]:
    """Every module of davylamp that a file imports, as "part.room.module"; names inside a module are kept, too."""
    modules = set()
    package = name.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - (node.level - 1)]
            elif (node.module or "").partition(".")[0] == "davylamp":
                base = []
            else:
                continue
            inside = (node.module or "").split(".")
            parts = base + [part for part in (inside if node.level else inside[1:]) if part]
            modules |= {".".join([*parts, alias.name]) for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("davylamp.")}
    return modules


def part_of(module: str) -> str:
    return module.partition(".")[0]


def room_of(module: str) -> str:
    """The room of a module, "" for one at the root of its part."""
    part, *rest = module.split(".")
    return rest[0] if rest and rest[0] in ROOMS.get(part, {}) else ""


def wrong_parts(files: Files) -> list[str]:
    lines = []
    for name, source in files.items():
        part = name.removesuffix(".py").split("/")[0]
        others = {part_of(module) for module in modules_imported(name, source)} & set(MAY_IMPORT) - {part}
        lines += [f"{name} imports {other}" for other in sorted(others - MAY_IMPORT[part])]
    return lines


def wrong_rooms(files: Files) -> list[str]:
    lines = []
    for name, source in files.items():
        path = name.removesuffix(".py").split("/")
        if path[0] not in ROOMS or (len(path) == 2 and path[1] == "__init__"):  # the face of a part may import it all
            continue
        room = path[1] if len(path) > 2 else ""
        inside = {module for module in modules_imported(name, source) if part_of(module) == path[0]}
        # What comes through the face of the same part counts for nothing: it is no room.
        others = {room_of(module) for module in inside if module.count(".") > 1} - {room}
        lines += [f"{name} imports {other}" for other in sorted(others - ROOMS[path[0]][room])]
    return lines


def written_in_full(files: Files) -> list[str]:
    """Imports of davylamp by its name: pyright can't follow them through the editable install."""
    lines = []
    for name, source in files.items():
        for node in ast.walk(parse(source)):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                imported = [node.module or ""]
            lines += [f"{name}:{node.lineno}" for module in imported if module.partition(".")[0] == "davylamp"]
    return lines


def sources() -> Files:
    paths = [path for part in MAY_IMPORT for path in (ROOT / f"{part}.py", *sorted((ROOT / part).rglob("*.py")))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths if path.is_file()}


def test_imports_between_parts_point_one_way():
    assert wrong_parts(sources()) == []


def test_imports_inside_the_package_are_relative():
    """A benchmark is also run as a file, which has no package to be relative to."""
    inside = {name: source for name, source in sources().items() if not name.startswith(("benchmarks/", "tools/"))}
    assert written_in_full(inside) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("from davylamp.errors import Refused", ["engine/a.py:1"]),
        ("import davylamp", ["engine/a.py:1"]),
        ("def late():\n    import davylamp.metrics as metrics", ["engine/a.py:2"]),
        ("from ..errors import Refused", []),
        ("import davylamps", []),
    ],
)
def test_the_check_of_relative_imports_can_fail(source, lines):
    assert written_in_full({"engine/a.py": source}) == lines


def test_imports_between_rooms_point_one_way():
    assert wrong_rooms(sources()) == []


def test_every_room_is_in_the_table():
    for part, rooms in ROOMS.items():
        folders = {path.parent.name for path in (ROOT / part).glob("*/__init__.py")}
        assert folders == set(rooms) - {""}


@pytest.mark.parametrize("arrows", [MAY_IMPORT, *ROOMS.values()], ids=["parts", *ROOMS])
def test_no_arrows_form_a_circle(arrows):
    assert list(TopologicalSorter(arrows).static_order())
    first, second = list(arrows)[-1], list(arrows)[-2]
    with pytest.raises(CycleError):
        TopologicalSorter({**arrows, first: {second}, second: {first}}).prepare()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("metrics/planted.py", "from ..errors import InvalidInput"),
        ("adapters/planted.py", "def f():\n    from ..engine.comparison.compare import compare"),
        ("adapters/running/planted.py", "def f():\n    from ...engine import compare"),
        ("adapters/models/identity/planted.py", "from ....engine.cell import Cell"),
        ("engine/planted.py", "from .. import report"),
        ("engine/run/planted.py", "from ... import report"),
        ("report/page/planted.py", "import davylamp.commands.check"),
        ("adapters/planted.py", "from davylamp import metrics"),
    ],
)
def test_the_check_of_parts_can_fail(name, source):
    assert wrong_parts({name: source})


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("engine/statistics/planted.py", "from ..store.outcomes import Outcome"),
        ("engine/plan/planted.py", "def f():\n    from ..run.worker import Workbench"),
        ("engine/planted.py", "from .store.store import ResultsStore"),
        ("adapters/models/identity/planted.py", "from ...running.run import run_attack"),
        ("adapters/libraries/art/planted.py", "from ...catalogue.lookup import find_attack"),
        ("report/parts/planted.py", "from davylamp.report.sections import agreement"),
    ],
)
def test_the_check_of_rooms_can_fail(name, source):
    assert wrong_rooms({name: source})


def names_twice(files: Files) -> list[str]:
    """Classes of one name in two modules. Patched classes of a library are called as the library calls its classes."""
    places = defaultdict(list)
    for name, source in files.items():
        if not name.endswith("/patches.py"):
            for node in ast.walk(parse(source)):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(name)
    return [f"class {name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def modules_twice(names: list[str]) -> list[str]:
    """Modules of one name, unless one of them is in a collection, where the folder's name is half of its own."""
    places = defaultdict(list)
    for name in names:
        if not name.endswith("__init__.py") and not name.startswith(COLLECTIONS):
            places[Path(name).name].append(name)
    return [", ".join(where) for where in places.values() if len(where) > 1]


def test_no_class_name_stands_for_two_things():
    assert names_twice(sources()) == []
    assert names_twice({"engine/a.py": "class A: ...", "report/b.py": "class A: ..."})


def test_no_module_name_stands_for_two_things():
    assert modules_twice(list(sources())) == []
    assert modules_twice(["engine/a.py", "report/parts/a.py"])


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("davylamp", (*HEAVY, "torch", "typer", "rich")),
        ("davylamp.metrics", (*HEAVY, "typer", "rich", "davylamp.adapters", "davylamp.errors")),
        ("davylamp.adapters", (*HEAVY, "typer", "rich", "torchvision", "davylamp.metrics")),
        ("davylamp.engine", (*HEAVY, "typer", "rich", "scipy.stats")),
        ("davylamp.benchmarks.reproductions", (*HEAVY, "torch", "typer", "rich", "pandas", "davylamp.adapters")),
        ("davylamp.cli", (*HEAVY, "torch", "numpy", "pandas", "davylamp.metrics")),
    ],
)
def test_importing_a_part_loads_nothing_that_it_does_not_need(module, forbidden, run_fresh):
    script = f"import sys, {module}; print([n for n in {forbidden!r} if n in sys.modules])"
    if "torch" not in forbidden:
        assert run_fresh(script) == "[]\n"
        return
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_nightly_tests_exist():
    assert NIGHTLY
    for name in NIGHTLY:
        file, first, *_ = name.split("::")  # a function, or a class, whose tests may lie in another file
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {first}(" in text or f"class {first}(" in text, name


def test_the_quick_files_exist():
    files = (ROOT / "tests" / "quick_files.txt").read_text(encoding="utf-8").split()
    assert files == sorted(set(files))
    assert [name for name in files if not (ROOT / "tests" / name).is_file()] == []
