"""Every rule of the front door is refused in one place: no two refusals have the same words, up to names and values."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOORS = ("commands", "api", "engine/plan")
ERRORS = {"InvalidInput", "Unsupported"}


def refusals():
    """The messages of the front door, by what they say, with the places where they are raised."""
    listed = defaultdict(list)
    for folder in DOORS:
        for path in sorted((ROOT / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_error = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS and node.args
                if is_error and (text := words(node.args[0])):
                    listed[text].append(f"{path.relative_to(ROOT).as_posix()}:{node.lineno}")
    return listed


def words(message):
    """The words of a message; "" where it is another error's. An option and the keyword of its name are one."""
    if isinstance(message, ast.Constant):
        text = str(message.value)
    elif isinstance(message, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in message.values)
    else:
        return ""
    return re.sub(r"[^a-z ]", "", text.replace("--", "").replace("-", "_").lower()).strip()


def test_each_rule_is_refused_in_one_place():
    listed = refusals()
    assert len(listed) > 60
    assert {text: places for text, places in listed.items() if len(places) > 1} == {}


def test_the_list_of_refusals_can_fail():
    assert words(ast.parse("'expected --a with `b`, got none'").body[0].value) == "expected a with b got none"
    assert words(ast.parse("f'expected --a, got {b}'").body[0].value) == "expected a got x"
