"""A page for every attack of the catalogue: what it is, who has it, its parameters, and what is known against it."""

from collections.abc import Mapping
from typing import Any

from page_parts import ORPHAN, table

from davylamp.adapters import ATTACKS, IMPLEMENTATIONS, PARAMETERS, Implementation
from davylamp.adapters.catalogue.known_issues import FINDINGS
from davylamp.adapters.catalogue.lookup import describe_implementation

OURS = "by davylamp, for every library"
STATUS = {
    "works": "runs as it is",
    "repaired": "mended from outside, so that it runs",
    "broken": "cannot run",
}


def render_all() -> dict[str, str]:
    """Pages by name, and their list."""
    rows: dict[str, list[Implementation]] = {}
    for row in IMPLEMENTATIONS.values():
        rows.setdefault(row.attack, []).append(row)
    names = sorted(rows)
    lines = []
    for name in names:
        attack = ATTACKS[name]
        libraries = sorted({row.library for row in rows[name]})
        norms = sorted({norm for row in rows[name] for norm in row.classes})
        lines.append([f"[{name}]({name}.md)", attack.title, attack.knowledge, ", ".join(norms), ", ".join(libraries)])
    counted = f"{len(IMPLEMENTATIONS)} implementations of {len(names)} attacks"
    head = f"# Attacks\n\n{counted}; `davylamp attacks` prints the same.\n\n"
    index = head + table(["name", "attack", "knowledge", "norms", "libraries"], lines)
    return {"attacks/index.md": index, **{f"attacks/{name}.md": render(name, rows[name]) for name in names}}


def render(name: str, rows: list[Implementation]) -> str:
    """The page of one attack."""
    attack, known = ATTACKS[name], {row.name: describe_implementation(row) for row in rows}
    text = f"{ORPHAN}# {attack.title}\n\n`{name}`: {attack.knowledge}, {attack.kind}. {attack.source}.\n\n"
    text += f"```console\n$ davylamp compare {name}\n```\n\n## Implementations\n\n"
    header = ["implementation", "class", "norms", "targeted", "random", "status"]
    text += table(header, [_line(row, known[row.name]) for row in rows])
    words = sorted({word for row in rows for word in known[row.name]["parameters"]})
    if words:
        text += f"\n## Parameters\n\nThe library's word for each, and its default.\n\n{_parameters(words, rows, known)}"
    if attack.matched:
        given = ", ".join(f"`{word} = {value}`" for word, value in attack.matched.items())
        text += f"\n`davylamp compare` gives every library {given}, unless other values or `--defaults` are given.\n"
    for title, of in (("Known findings", _findings), ("Mended from outside", _repairs)):
        lines = [f"- `{row.name}`: {line}" for row in rows for line in of(row)]
        text += f"\n## {title}\n\n" + "\n".join(lines) + "\n" if lines else ""
    return text


def _line(row: Implementation, known: Mapping[str, Any]) -> list[str]:
    classes = ", ".join(f"`{each}`" for each in known["class"])
    random = ", ".join(row.random) or "no"
    status = "the algorithm is repaired" if row.variant else STATUS[row.status]
    return [f"`{row.name}`", classes, ", ".join(row.classes), row.targeted, random, row.broken or status]


def _parameters(words: list[str], rows: list[Implementation], known: Mapping[str, Any]) -> str:
    lines = []
    for word in words:
        meanings = {**PARAMETERS, **{key: value for row in rows for key, value in row.more.items()}}
        taken = [row for row in rows if word in known[row.name]["parameters"] and not row.variant]
        theirs = {row.library: _word(row, word, known[row.name]["defaults"]) for row in taken}
        shown = "<br>".join(f"{library}: {said}" for library, said in theirs.items())
        if set(theirs.values()) == {OURS}:
            shown = OURS
        lines.append([f"`{word}`", meanings[word].meaning if word in meanings else "", shown])
    return table(["parameter", "meaning", "in the library"], lines)


def _word(row: Implementation, word: str, defaults: Any) -> str:
    """The library's word with its default, by norm where the norms differ."""
    theirs = f"`{row.params[word]}`" if word in row.params else OURS
    if not defaults:
        return theirs
    if all(isinstance(value, Mapping) for value in defaults.values()):
        values = {norm: given[word] for norm, given in defaults.items() if word in given}
        same = len({str(value) for value in values.values()}) == 1
        shown = ", ".join(
            [str(value) if same else f"{value} ({norm})" for norm, value in values.items()][: 1 if same else None]
        )
    else:
        shown = str(defaults[word]) if word in defaults else ""
    return f"{theirs} = {shown}" if shown else theirs


def _findings(row: Implementation) -> list[str]:
    return [f"**{key}**: {FINDINGS[key]}" for key in row.findings]


def _repairs(row: Implementation) -> list[str]:
    return list(row.repairs)
