"""Renders the pages of attacks: implementations, parameters, known issues, patches, and the list of attacks."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from page_parts import ORPHAN, index_entries, prose, table

from davylamp.adapters import ATTACKS, IMPLEMENTATIONS, PARAMETERS, Implementation
from davylamp.adapters.catalogue.known_issues import FINDINGS
from davylamp.adapters.catalogue.lookup import describe_implementation

OURS = "by davylamp, for every library"
STATUS = {
    "works": "runs as it is",
    "patched": "patched",
    "broken": "cannot run",
}
SHARED = 3  # libraries that an attack needs to have a row of its own in the table of libraries


def render_all() -> dict[str, str]:
    """Render the page of each attack, the list of attacks and the list of known issues, by file name."""
    rows: dict[str, list[Implementation]] = {}
    for row in IMPLEMENTATIONS.values():
        rows.setdefault(row.attack, []).append(row)
    pages = {f"attacks/{name}.md": render(name, rows[name]) for name in sorted(rows)}
    return {"attacks/index.md": render_index(rows), "known-issues.md": render_issues(), **pages}


def render_index(rows: Mapping[str, list[Implementation]]) -> str:
    """Render the list of attacks, with a table of the libraries that have the most widespread attacks."""
    shipped = [row for row in IMPLEMENTATIONS.values() if not row.variant]
    status, fixed = Counter(row.status for row in shipped), len(IMPLEMENTATIONS) - len(shipped)
    text = prose(f"""
        # Attacks

        {len(IMPLEMENTATIONS)} implementations of {len(rows)} attacks: {status["works"]} run as they are,
        {status["patched"]} are patched from outside so that they run, {status["broken"]} cannot run, and {fixed} are
        fixed variants (`@fixed`), in which a [known issue](../known-issues.md) of the algorithm is corrected. An
        implementation is one library's version of an attack: `foolbox:pgd`.

        `davylamp attacks` prints the list, `davylamp attacks pgd` the parameters, defaults and known issues of one
        attack.

        ## Who has it
    """)
    text += f"{_libraries(rows)}\n## All attacks\n\n"
    lines = []
    for name in sorted(rows):
        attack = ATTACKS[name]
        libraries = sorted({row.library for row in rows[name]})
        norms = sorted({norm for row in rows[name] for norm in row.classes})
        lines.append([f"[{name}]({name}.md)", attack.title, attack.knowledge, ", ".join(norms), ", ".join(libraries)])
    text += table(["name", "attack", "knowledge", "norms", "libraries"], lines)
    text += "\nMissing one? See [library attacks that are not included](../../attacks-left-out.md) and "
    return text + "[the attacks that davylamp implements itself](../../davylamp-attacks.md).\n"


def _libraries(rows: Mapping[str, list[Implementation]]) -> str:
    """Render a table of attacks by libraries. The last row counts the attacks that few libraries have."""
    having = {name: {row.library for row in each if not row.variant} for name, each in rows.items()}
    columns = [name for name, _ in Counter(row.library for row in IMPLEMENTATIONS.values()).most_common()]
    shared = sorted(
        (name for name in having if len(having[name]) >= SHARED), key=lambda name: (-len(having[name]), name)
    )
    lines = [[f"[{name}]({name}.md)", *("x" if each in having[name] else "" for each in columns)] for name in shared]
    others = [libraries for libraries in having.values() if len(libraries) < SHARED]
    counts = [sum(each in libraries for libraries in others) for each in columns]
    return table(["attack", *columns], [*lines, [f"{len(others)} others", *counts]])


def render_issues() -> str:
    """Render the list of known issues, each with its implementations."""
    text = prose("""
        # Known issues of the libraries

        Defects of a library's algorithm. davylamp runs it as it is and names the issue with every result. Add
        `--fixed` to run the fixed variant as well, if there is one.
    """)
    lines = []
    for key, meaning in sorted(FINDINGS.items()):
        concerned = [row for row in IMPLEMENTATIONS.values() if key in row.findings]
        shown = ", ".join(f"[{row.name}](attacks/{row.attack}.md)" + _fixed(row, key) for row in concerned)
        lines += [[f"`{key}`", meaning, shown]] if concerned else []
    return text + table(["id", "issue", "implementations"], lines)


def _fixed(row: Implementation, issue: str) -> str:
    of = (row.library, row.attack)
    variants = [each for each in IMPLEMENTATIONS.values() if each.variant and (each.library, each.attack) == of]
    return " (fixed variant)" if any(issue not in each.findings for each in variants) and not row.variant else ""


def render(name: str, rows: list[Implementation]) -> str:
    """Render the page of one attack."""
    attack, known = ATTACKS[name], {row.name: describe_implementation(row) for row in rows}
    text = f"{ORPHAN}# {attack.title}\n\n" + index_entries((attack.title, name))
    text += f"`{name}`: {attack.knowledge}, {attack.kind}. {attack.source}.\n\n"
    text += f"```console\n$ davylamp compare {name}\n```\n\n## Implementations\n\n"
    header = ["implementation", "class", "norms", "targeted", "random", "status"]
    text += table(header, [_line(row, known[row.name]) for row in rows])
    words = sorted({word for row in rows for word in known[row.name]["parameters"]})
    if words:
        text += (
            "\n## Parameters\n\nThe library's name of each, and its default ([all parameters](../parameters.md)).\n\n"
        )
        text += _parameters(words, rows, known)
    if attack.matched:
        given = ", ".join(f"`{word} = {value}`" for word, value in attack.matched.items())
        text += f"\n`davylamp compare` gives every library {given}, unless other values or `--defaults` are given.\n"
    for title, of in (("Known issues", _issues), ("Patches, so that it runs", _patches)):
        lines = [f"- `{row.name}`: {line}" for row in rows for line in of(row)]
        text += f"\n## {title}\n\n" + "\n".join(lines) + "\n" if lines else ""
    return text


def _line(row: Implementation, known: Mapping[str, Any]) -> list[str]:
    classes = ", ".join(f"`{each}`" for each in known["class"])
    random = ", ".join(row.random) or "no"
    status = "fixed variant" if row.variant else STATUS[row.status]
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
    """Format the library's name of a parameter with its default, by norm if the norms differ."""
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


def _issues(row: Implementation) -> list[str]:
    return [f"**{key}**: {FINDINGS[key]}" for key in row.findings]


def _patches(row: Implementation) -> list[str]:
    return list(row.repairs)
