"""The options of `davylamp evaluate` as its source says: a shell that completes does not wait for torch."""

import ast
from pathlib import Path
from typing import Annotated, Any

import typer

_SOURCE = Path(__file__).parent.parent / "engine" / "plan" / "config.py"


def options_in_source() -> dict[str, tuple[Any, Any]]:
    """Annotation and default of an option for each field of `Config` that has one: names and flags, no values."""
    tree = ast.parse(_SOURCE.read_text(encoding="utf-8"))
    (record,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config")
    options = {}
    for line in record.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        call = _option_in(line.annotation)
        if call is None:
            continue
        name, kind = line.target.id, ast.unparse(line.annotation).removeprefix("Annotated[")
        said = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        asked = typer.Option(f"--{said.get('name') or name.replace('_', '-')}", help=ast.literal_eval(call.args[0]))
        shown: Any = bool if kind.startswith("bool") else list[str] if kind.startswith("tuple") else str
        options[name] = (Annotated[bool, asked], False) if shown is bool else (Annotated[shown | None, asked], None)
    return options


def _option_in(annotation: ast.expr) -> ast.Call | None:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Option":
            return node
    return None
