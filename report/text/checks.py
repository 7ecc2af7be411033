"""Terminal output of failure indicators and contract checks. Problems are printed in full, the others as counts."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ...engine.finding import STATES, Finding
from .console import PlainConsole, print_notes, print_table

_COLUMNS = ("state", "indicator", "subject", "images", "detail", "what to do")
_UNPASSED = ("failed", "weak", "inconclusive")  # states of a contract check, the worst first


def print_checks(checks: Sequence[Finding], title: str, notes: Iterable[str], console: PlainConsole) -> None:
    """Print results of failure indicators: counts, a table of failures and warnings, and advice for unknown results.

    Args:
        checks: results of `check_folder`.
        title: heading of the counts.
        notes: warnings about the results folder, such as a model that is random but not declared as random.
        console: output console. If verbose, unknown and passing indicators are listed individually.
    """
    print_notes(notes, console)
    console.print(f"{title}: {count_states(checks)}")
    shown = [check for check in checks if console.verbose or check.state in ("fail", "warn")]
    if shown:
        print_table("", _COLUMNS, _rows(shown, folded=not console.verbose), console, keys=3, rest="blocks")
    if not console.verbose:
        wanted = Counter(check.advice or check.detail for check in checks if check.state == "unknown")
        print_notes((f"{count} unknown: {advice}" for advice, count in wanted.most_common()), console)


def count_states(checks: Sequence[Finding]) -> str:
    """Return the number of indicators in each state, with the names of failed indicators.

    For example, "1 fail (Unavailable gradients), 0 warn, ...".
    """
    counts = Counter(check.state for check in checks)
    failed = Counter(check.title for check in checks if check.state == "fail")
    names = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in failed.items())
    said = [f"{counts['fail']} fail{f' ({names})' if names else ''}"]
    return ", ".join([*said, *(f"{counts[state]} {state}" for state in ("warn", "unknown", "pass"))])


def _rows(checks: Sequence[Finding], *, folded: bool) -> list[list[Any]]:
    """Build the table rows, the worst states first.

    If `folded`, all results of an indicator with the same state share a row, with the first result as an example.
    """
    rows: list[list[Any]] = []
    for state in STATES:
        groups: dict[Hashable, list[Finding]] = {}
        for check in (check for check in checks if check.state == state):
            alike = {"pass": check.name, "unknown": (check.name, check.detail, check.advice)}
            key = check.name if folded else alike.get(state, len(groups))
            groups.setdefault(key, []).append(check)
        for group in groups.values():
            first, more = group[0], len(group) - 1
            subject = f"{more + 1} subjects" if more and not folded else first.subject
            subject += f" and {more} more" if more and folded else ""
            detail = first.detail if not more or folded or state == "unknown" else ""
            rows.append([state, first.title, subject, len(first.images) or None, detail or "-", first.advice or "-"])
    return rows


def print_promises(promises: Sequence[Any], attacks: int, console: PlainConsole) -> None:
    """Print a table of the failed, weak and inconclusive contract checks, and the number of checks in each state.

    Args:
        promises: results of contract checks.
        attacks: number of tested attacks.
        console: output console. If verbose, the table also has passed and inapplicable checks.
    """
    states = (*_UNPASSED, *dict.fromkeys(each.state for each in promises if each.state not in _UNPASSED))
    alike: dict[tuple[str, ...], list[str]] = {}
    for each in sorted(promises, key=lambda each: states.index(each.state)):
        if console.verbose or each.state in _UNPASSED:
            alike.setdefault((each.implementation, each.promise, each.state, each.detail), []).append(each.norm)
    rows = [(row, ", ".join(norms), promise, state, detail) for (row, promise, state, detail), norms in alike.items()]
    if rows:
        columns = ("implementation", "norm", "check", "state", "detail")
        print_table("", columns, rows, console, keys=3, order=("state", "detail"), rest="blocks")
    counts = Counter(each.state for each in promises)
    summary = ", ".join(f"{counts[state]} {state}" for state in states if counts[state] or state == "failed")
    console.print(f"{attacks} attack{'' if attacks == 1 else 's'}: {summary}")


def print_conformance(findings: Sequence[Any], console: PlainConsole) -> None:
    """Print false results on misbehaving models as a table, then counts.

    A verbose console also shows correct results.
    """
    wrong = [each for each in findings if each.complaint]
    lines = [
        (each.implementation, each.norm, each.plant, each.complaint or "correct", each.outcome)
        for each in (findings if console.verbose else wrong)
    ]
    if lines:
        columns = ("implementation", "norm", "misbehaving model", "verdict", "outcome")
        print_table("", columns, lines, console, keys=3, rest="blocks")
    names = len({each.implementation for each in findings})
    counts = ((names, "implementation"), (len(findings), "run"), (len(wrong), "false result"))
    console.print("{}, {}: {}".format(*(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)))
