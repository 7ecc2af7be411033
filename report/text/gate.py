"""Output of a gate: terminal table, Markdown for a pull request, JUnit XML and SARIF 2.1.0."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from ...engine.checks.gate_requirements import Decision
from .console import PlainConsole, escape_control_characters, interval_text, print_notes, print_table
from .tables import markdown_text

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COLUMNS = ("verdict", "requirement", "model", "value [95 %]", "images", "attacks", "reason")
_KINDS = {"pass": "pass", "fail": "fail"}  # of SARIF; the others are "open": not decided


def print_gate(headline: str, decisions: Sequence[Decision], notes: Sequence[str], console: PlainConsole) -> None:
    """Print the verdict of a gate, a table with one row per decision (the worst first), and notes."""
    console.print(headline)
    print_table("", _COLUMNS, _cells(decisions), console, keys=2, rest="blocks")
    print_notes(notes, console)


def gate_markdown(headline: str, decisions: Sequence[Decision], notes: Sequence[str]) -> str:
    """Return the verdict, the decisions and the notes of a gate as Markdown, for the summary of a pull request."""
    rows = [_COLUMNS, ["---"] * len(_COLUMNS), *_cells(decisions)]
    table = "".join(f"| {' | '.join(markdown_text(_printable(str(cell))) for cell in row)} |\n" for row in rows)
    listed = "".join(f"\n- {markdown_text(note)}" for note in notes)
    return f"### davylamp gate: {markdown_text(_printable(headline))}\n\n{table}{listed}{chr(10) * bool(notes)}"


def gate_junit(decisions: Sequence[Decision]) -> str:
    """Return the decisions of a gate as JUnit XML, with one test case per decision.

    The test case of a failed decision has a failure. The test case of an undecided decision has an error.
    """
    failed = sum(each.verdict == "fail" for each in decisions)
    passed = sum(each.verdict == "pass" for each in decisions)
    counts = {"tests": len(decisions), "failures": failed, "errors": len(decisions) - failed - passed, "skipped": 0}
    suite = ET.Element("testsuite", {"name": "davylamp gate", **{name: str(n) for name, n in counts.items()}})
    for each in decisions:
        names = {"classname": each.model or "davylamp", "name": f"{each.requirement}{_where(each)}", "time": "0"}
        case = ET.SubElement(suite, "testcase", {key: _printable(text) for key, text in names.items()})
        if each.verdict != "pass":
            about = {"type": each.verdict, "message": _printable(_sentence(each))}
            ET.SubElement(case, "failure" if each.verdict == "fail" else "error", about)
    root = ET.Element("testsuites", {name: str(n) for name, n in counts.items()})
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def gate_sarif(decisions: Sequence[Decision], document: Mapping[str, Any], version: str) -> str:
    """Return the decisions of a gate as SARIF 2.1.0, with one rule per requirement and one result per decision.

    The location of every result is the results folder.

    Args:
        decisions: decisions of the gate.
        document: gate as JSON types. The entry `folder` is the path of the results folder.
        version: version of davylamp.
    """
    rules = list(dict.fromkeys(each.requirement for each in decisions))
    folder = Path(str(document["folder"]))
    uri = folder.resolve().as_uri() if folder.is_absolute() else quote(folder.as_posix())
    results = []
    for each in decisions:
        kind = _KINDS.get(each.verdict, "open")
        place: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}}}
        if each.model:
            place["logicalLocations"] = [{"name": _printable(each.model), "kind": "object"}]
        results.append(
            {
                "ruleId": each.requirement,
                "ruleIndex": rules.index(each.requirement),
                "kind": kind,
                "level": "error" if kind == "fail" else "none",  # section 3.27.10: none for every other kind
                "message": {"text": _printable(f"{each.model}{_where(each)}: {_sentence(each)}".removeprefix(": "))},
                "locations": [place],
                "properties": each.document(),
            }
        )
    described = [{"id": name, "shortDescription": {"text": name}} for name in rules]
    driver = {"name": "davylamp", "version": version, "rules": described}
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"


def _cells(decisions: Sequence[Decision]) -> list[list[Any]]:
    return [
        [
            each.verdict,
            each.requirement,
            f"{each.model}{_where(each)}" or "-",
            _value(each) or "-",
            each.images or "-",
            each.attacks or "-",
            each.detail or "-",
        ]
        for each in decisions
    ]


def _where(decision: Decision) -> str:
    """Return the threat model of a decision as text. "" if the requirement already contains the threat model."""
    known = not decision.threat or decision.requirement.endswith(f"@ {decision.threat}")
    return "" if known else f", {decision.threat}"


def _value(decision: Decision) -> str:
    """Format the value of a decision with its interval. "" if the decision has no images."""
    if not decision.images:
        return ""
    return f"{'difference ' * decision.is_change}{interval_text(decision.value, decision.low, decision.high)}"


def _sentence(decision: Decision) -> str:
    about = f" on {decision.images} images" if decision.images else ""
    value = f"{_value(decision)}{about}" if decision.images else ""
    return ": ".join(filter(None, (decision.verdict, ", ".join(filter(None, (value, decision.detail))))))


def _printable(text: str) -> str:
    """Escape control characters, which XML does not allow, and replace no-break spaces."""
    return escape_control_characters(text.replace("\N{NO-BREAK SPACE}", " "))
