"""Terminal output of a challenge: each attack when it finishes, then the verdict."""

from collections.abc import Sequence
from typing import Any

from ...adapters.display_text import format_radius
from ...engine.challenge.attempts import PARTS, AttackOutcome
from ...engine.challenge.challenge_result import NO_RESULT, lead_of
from ...engine.challenge.challenge_verdict import share_text
from .console import PlainConsole, print_table

COLUMNS = ("attacker", "attack", "made on", "gradients", "radius", "accuracy", "95 % interval", "passes", "violations")


def attempt_text(attempt: AttackOutcome) -> str:
    """Format one attack as one line."""
    what = f"failed: {attempt.error}" if attempt.error else f"accuracy {share_text(attempt.accuracy)}"
    return f"- {PARTS[attempt.part]}: {attempt.title}, radius {attempt.epsilon:.4g}: {what}"


def attempt_row(attempt: dict[str, Any], norm: str) -> list[Any]:
    """Format an attack from a challenge document as a row with the columns `COLUMNS`."""
    accuracy, kinds = attempt["accuracy"], attempt["violations"]
    numbers = (
        [f"failed: {attempt['error']}", "-", "-"]
        if accuracy is None
        else [f"{accuracy['value']:.3f}", f"{accuracy['low']:.2f} - {accuracy['high']:.2f}", f"{attempt['passes']:.0f}"]
    )
    return [
        PARTS[attempt["part"]],
        attempt["attack"],
        attempt["made_on"],
        attempt["gradients"] or "as named",
        format_radius(norm, attempt["epsilon"]),
        *numbers,
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "-",
    ]


def verdict_lines(document: dict[str, Any]) -> list[str]:
    """Format the verdict, and the accuracy at each radius."""
    norm, worst = document["norm"], document["worst"]
    rules = f"{norm} {format_radius(norm, document['epsilon'])}"
    shares = [(format_radius(norm, each["epsilon"]), each["value"]) for each in document["radii"]]
    curve = ", ".join(f"{radius}: {'-' if value is None else f'{value:.1%}'}" for radius, value in shares)
    unknown = f"; {NO_RESULT}" if any(value is None for _, value in shares) else ""
    lines = [f"{document['model']}, {rules}: {document['sentence']}"]
    lines.append(f"worst-case accuracy over all attacks up to each radius, {worst['n']} images: {curve}{unknown}")
    lines.append(f"failure indicators: {_indicators(document)}")
    if document["verdict"] != "falls":
        lines.append("no attack was designed for this particular defence; one that is may still break it")
    return lines


def _indicators(document: dict[str, Any]) -> str:
    """Count the indicators by state, and name those that fail or warn."""
    parts = []
    for state in ("fail", "warn", "pass"):
        names = ", ".join(
            dict.fromkeys(each["indicator"] for each in document.get("fired", ()) if each["state"] == state)
        )
        if count := document["indicators"].get(state, 0):
            parts.append(f"{count} {state}{f' ({names})' if names else ''}")
    return ", ".join(parts) or "none"


def strongest_of_each_kind(attempts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the attack with the lowest accuracy of each kind, and all failed attacks."""
    lowest: dict[str, dict[str, Any]] = {}
    for each in attempts:
        best = lowest.setdefault(each["part"], each)
        if each["accuracy"] and (not best["accuracy"] or each["accuracy"]["value"] < best["accuracy"]["value"]):
            lowest[each["part"]] = each
    return [each for each in attempts if not each["accuracy"] or lowest[each["part"]] is each]


def _above_clean(document: dict[str, Any]) -> list[str]:
    """Return a note if an attack leaves an accuracy above the clean one, which a random model's samples allow."""
    clean = document["clean"]["value"]
    mine = [each for each in document["attempts"] if each["part"] != "undefended" and each["accuracy"]]
    if clean is None or all(each["accuracy"]["value"] <= clean for each in mine):
        return []
    return ["an accuracy above the clean accuracy is due to chance: clean images are judged on different samples"]


def print_challenge(document: dict[str, Any], page: str, console: PlainConsole) -> None:
    """Print the verdict, the attacks, the accuracies and the path of the page."""
    verdict, *more = verdict_lines(document)
    for line in (verdict, *lead_of(document), *_above_clean(document), *document.get("notes", ())):
        console.print(line, highlight=False, markup=False)
    attempts = document["attempts"]
    shown = attempts if console.verbose else strongest_of_each_kind(attempts)
    rows = [attempt_row(attempt, document["norm"]) for attempt in shown]
    order = ("accuracy", "95 % interval", "radius", "passes", "made on")
    few = f"The strongest attack of each kind, of {len(attempts)} (-v)"
    print_table(few if len(shown) < len(attempts) else "All attacks", COLUMNS, rows, console, keys=2, order=order)
    for line in (*more, f"page: {page}"):
        console.print(line, highlight=False, markup=False)
