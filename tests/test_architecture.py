"""Imports point one way, read from the source; nothing heavy is loaded before it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "metrics": set(),
    "scoring": set(),
    "errors": set(),
    "adapters": {"errors"},
    "engine": {"metrics", "adapters", "errors"},
    "report": {"engine", "scoring", "metrics", "errors"},
    "benchmarks": {"metrics", "adapters", "scoring", "engine", "report", "commands", "cli", "errors"},
    "commands": {"metrics", "adapters", "scoring", "engine", "report", "benchmarks", "errors"},
    "cli": {"commands", "errors"},
}
HEAVY = ("art", "foolbox", "torchattacks", "ray", "pyro", "timm")


def parts_imported(source: str, depth: int, part: str) -> set[str]:
    """The parts of davylamp that a file imports; `depth` folders below the root, 0 for a module in the root."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == depth + 1:
                names = [module] if module else [alias.name for alias in node.names]
                found |= {name.partition(".")[0] for name in names}
            elif node.level == 0 and module.partition(".")[0] == "davylamp":
                names = [module.partition(".")[2]] if "." in module else [alias.name for alias in node.names]
                found |= {name.partition(".")[0] for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("davylamp.")}
    return (found & set(MAY_IMPORT)) - {part}


def violations(files: dict[str, list[tuple[str, str]]]) -> list[str]:
    lines = []
    for part, sources in files.items():
        for name, source in sources:
            depth = 0 if part in ("cli", "errors") else 1
            wrong = parts_imported(source, depth, part) - MAY_IMPORT[part]
            lines += [f"{name} imports {other}" for other in sorted(wrong)]
    return lines


def sources():
    files = {}
    for part in MAY_IMPORT:
        paths = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").is_file() else sorted((ROOT / part).rglob("*.py"))
        files[part] = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths]
    return files


def test_imports_point_one_way():
    assert violations(sources()) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("metrics", "from ..errors import InvalidInput"),
        ("adapters", "def f():\n    from ..engine.compare import compare"),
        ("engine", "from .. import report"),
        ("report", "import davylamp.adapters.running.run"),
        ("adapters", "from davylamp import metrics"),
    ],
)
def test_the_check_can_fail(part, source):
    assert violations({part: [("planted.py", source)]})


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("davylamp", (*HEAVY, "torch", "typer", "rich")),
        ("davylamp.metrics", (*HEAVY, "typer", "rich", "davylamp.adapters", "davylamp.errors")),
        ("davylamp.adapters", (*HEAVY, "typer", "rich", "torchvision", "davylamp.metrics")),
        ("davylamp.engine", (*HEAVY, "typer", "rich", "scipy.stats")),
        ("davylamp.cli", (*HEAVY, "torch", "davylamp.adapters", "davylamp.metrics")),
    ],
)
def test_importing_a_part_loads_nothing_that_it_does_not_need(module, forbidden):
    script = f"import sys, {module}; print([n for n in {forbidden!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
