"""Breaks random places of the product, one at a time, and reports whether the tests that run them notice.

    python -m pytest -n 2 --cov --cov-context=test         # once, to find which test runs which line (needs pytest-cov)
    python -m davylamp.tools.mutation.sample .coverage [--under metrics/] [--seed 1] [--count 40]

The tool changes files in the checkout to which the coverage belongs. Use a separate checkout for it. A place is a
comparison, an operator, a boolean, a number or a returned value, drawn from all places of the product. `break_node`
defines how each is broken. The tests that run its line are executed, those that run the fewest lines first, until one
fails or the time is over. For a line that runs at import, the tests of its file are executed. A place that no test runs
counts as unnoticed. To compare two states of the suite, use the same product and seed, which give the same places.
"""

import argparse
import ast
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_OPPOSITE: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_LEFT_OUT = ("tests/", "tools/", "docs/")


class Mutation(NamedTuple):
    """A range of bytes in a line of a file, and the text that replaces it."""

    path: str
    line: int
    last_line: int
    start: int
    end: int
    broken: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.broken}"


def break_node(node: ast.AST) -> ast.AST | None:  # noqa: PLR0911
    """Return the broken version of a node, or None if there is none.

    `<` becomes `<=`, + becomes -, `and` becomes `or`, a number becomes one more, and a returned value becomes None.
    """
    match node:
        case ast.Compare(left, [operator, *others], comparators) if type(operator) in _OPPOSITE:
            return ast.Compare(left, [_OPPOSITE[type(operator)](), *others], comparators)
        case ast.BinOp(left, operator, right) if type(operator) in _OPPOSITE and not _has_text(node):
            return ast.BinOp(left, _OPPOSITE[type(operator)](), right)
        case ast.BoolOp(operator, values):
            return ast.BoolOp(_OPPOSITE[type(operator)](), values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Constant(bool() as value):
            return ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            return ast.Constant(value + 1)
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            return ast.Return(ast.Constant(None))
    return None


def _has_text(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.JoinedStr, ast.Constant)) and _is_text(part) for part in ast.walk(node))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def places_of(path: str, text: str) -> Iterator[Mutation]:
    """Return all places of a file that can be broken, except in annotations and f-strings."""
    skipped: set[int] = set()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        notes = [getattr(node, name, None) for name in ("annotation", "returns")]
        texts = [node] if isinstance(node, ast.JoinedStr) else []
        for hidden in (*filter(None, notes), *texts):
            skipped.update(id(part) for part in ast.walk(hidden))
    for node in ast.walk(tree):
        if id(node) not in skipped and (broken := break_node(node)) is not None:
            code = ast.unparse(ast.fix_missing_locations(broken))
            code = code if isinstance(node, ast.stmt) else f"({code})"
            yield Mutation(path, node.lineno, node.end_lineno, node.col_offset, node.end_col_offset, code)  # type: ignore[attr-defined]


def break_at(place: Mutation, text: str) -> str:
    """Return the text of a file with one place broken."""
    lines = text.encode().splitlines(keepends=True)
    first, last = place.line - 1, place.last_line - 1
    lines[first : last + 1] = [lines[first][: place.start] + place.broken.encode() + lines[last][place.end :]]
    return b"".join(lines).decode()


def find_tests(data: str, root: Path) -> dict[tuple[str, int], list[str]]:
    """Return the tests that run each line (0 for any line of the file), those that run the fewest lines first."""
    import coverage  # type: ignore[import-not-by_line]

    kept = coverage.CoverageData(data)
    kept.read()
    by_line: dict[tuple[str, int], set[str]] = {}
    size: Counter[str] = Counter()
    for file in kept.measured_files():
        for line, contexts in kept.contexts_by_lineno(file).items():
            tests = {context.rpartition("|")[0] for context in contexts if "::" in context}
            by_line[str(Path(file).relative_to(root)), line] = tests
            by_line.setdefault((str(Path(file).relative_to(root)), 0), set()).update(tests)
            size.update(tests)
    return {line: sorted(tests, key=lambda name: (size[name], name)) for line, tests in by_line.items()}


def notices(place: Mutation, tests: list[str], seconds: float, root: Path) -> str:
    """Return the test that noticed a broken place, or "" if none did."""
    path = root / place.path
    text = path.read_text("utf-8")
    path.write_text(break_at(place, text), "utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no"]
    try:
        done = subprocess.run(
            [*command, *tests[:400]], cwd=root, timeout=seconds, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    finally:
        path.write_text(text, "utf-8")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "" if done.returncode in (0, 5) else (failed or ["does not start"])[0]


def main() -> None:
    """Print a line for each place, then the number of places that were noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="coverage data, with a context for each test")
    parser.add_argument("--under", default="", help="only files whose paths start with this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=120, help="seconds for the tests of one place")
    given = parser.parse_args()
    root = Path.cwd()
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True).stdout.split()
    product = sorted(path for path in listed if path.startswith(given.under) and not path.startswith(_LEFT_OUT))
    places = [place for path in product for place in places_of(path, (root / path).read_text("utf-8"))]
    tests = find_tests(given.data, root)
    noticed = 0
    for place in random.Random(given.seed).sample(places, given.count):
        lines = (*range(place.line, place.last_line + 1), 0)  # what runs at import is left to the tests of the file
        mine = next((tests[place.path, line] for line in lines if tests.get((place.path, line))), [])
        by = notices(place, mine, given.seconds, root) if mine else ""
        noticed += bool(by)
        sys.stdout.write(f"{'noticed' if by else 'MISSED'} {place} [{len(mine)} tests] {by}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{noticed} of {given.count} noticed\n")


if __name__ == "__main__":
    main()
