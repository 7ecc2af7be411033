"""Section on failure indicators, the worst first."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...engine.finding import STATES, Finding
from ..parts.blocks import (
    Collapsible,
    Column,
    PageTable,
    Section,
    Statement,
    TableCell,
    Text,
    badge,
    list_table,
    make_table,
)

_SHOWN_IMAGES = 6
_QUIET = 400  # most checks that did not fire, in the table
_SAID = 4  # most indicators that fired, on the first screen
_NOTHING = "This does not show robustness, because only these checks were made."


def write_trust(checks: Sequence[Finding]) -> Section:
    """Build the section: counts, the indicators that warn or fail, and a collapsed table of the others."""
    counts = Counter(check.state for check in checks)
    fired = [check for check in checks if check.state in ("fail", "warn")]
    quiet = [check for check in checks if check.state not in ("fail", "warn")]
    summary = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "nothing was checked"
    first: Any = Text(f"No indicator fired. {_NOTHING}", "lead")
    if fired:
        first = _table("trust-fired", "Indicators that fired", fired)
    more = f"{len(quiet) - _QUIET} more are omitted: `davylamp check FOLDER` lists all."
    left = (Text(more, "note"),) if len(quiet) > _QUIET else ()
    others = (_table("trust-quiet", "Other indicators", quiet[:_QUIET]), *left)
    blocks = (
        first,
        Collapsible("Every indicator, with its source", (_overview(checks),)),
        Collapsible(f"Passed or unknown ({len(quiet)})", others),
    )
    lead = (
        f"Can these numbers be trusted? {summary}. Each indicator is a sign of a flawed evaluation. If Pintor et al. "
        "2022 or Carlini et al. 2019 have a name for it, this name is used. Some indicators need extra runs: "
        "`davylamp check FOLDER --probe`."
    )
    fired_as = ", ".join(f"{counts[state]} {state}" for state in ("fail", "warn") if counts[state])
    return Section("trust", "Trust: failure indicators", lead, blocks, badge=fired_as)


def failed_indicators(checks: Sequence[Finding]) -> tuple[Statement, ...]:
    """Describe the indicators that warn or fail, the worst first, each with its worst measurement."""
    fired: dict[tuple[str, str], list[Finding]] = {}
    for check in sorted(checks, key=lambda check: STATES.index(check.state)):
        if check.state in ("fail", "warn"):
            fired.setdefault((check.state, check.title), []).append(check)
    if not fired:
        judged = sum(check.state == "pass" for check in checks)
        return (Statement(f"None: {judged} checks passed. {_NOTHING}", "pass", "trust"),)
    lines = [_say_alarm(title, alike) for (_, title), alike in fired.items()]
    if lines[0].state == "warn":
        lines.insert(0, Statement("None failed. Warnings:", "pass"))
    more = len(lines) - _SAID
    return (*lines[:_SAID], Statement(f"{more} more fired.", "warn", "trust")) if more > 0 else tuple(lines)


def _say_alarm(title: str, fired: Sequence[Finding]) -> Statement:
    worst = max(fired, key=lambda check: len(check.images))
    others = f" (and {len(fired) - 1} more like it)" if len(fired) > 1 else ""
    return Statement(f"{worst.detail}.", worst.state, "trust", lead=f"{title}:", proof=f"{worst.subject}{others}.")


def _overview(checks: Sequence[Finding]) -> PageTable:
    by_title: dict[str, list[Finding]] = {}
    for check in checks:
        by_title.setdefault(check.title, []).append(check)
    rows = []
    for title, members in by_title.items():
        counts = Counter(check.state for check in members)
        worst = next(state for state in STATES if counts[state])
        rows.append((badge(worst), title, *(counts[state] for state in STATES), members[0].source))
    rows.sort(key=lambda row: STATES.index(row[0].value))
    return make_table("trust-overview", "Every indicator", ("worst", "indicator", *STATES, "source"), rows)


def _table(name: str, caption: str, checks: Sequence[Finding]) -> PageTable:
    ordered = sorted(checks, key=lambda check: STATES.index(check.state))
    columns = (
        ("state", lambda check: badge(check.state)),
        ("indicator", lambda check: check.title),
        ("subject", lambda check: check.subject),
        ("result", lambda check: check.detail),
        ("what to do", lambda check: check.advice),
        (Column("images", "the affected images"), _images),
    )
    return list_table(name, caption, ordered, columns)


def _images(check: Finding) -> TableCell:
    shown = ", ".join(check.images[:_SHOWN_IMAGES])
    rest = len(check.images) - _SHOWN_IMAGES
    return TableCell(f"{shown} and {rest} more" if rest > 0 else shown, len(check.images))
