"""What is missing in a folder: cells without a result, models at chance, checks that nobody ran, images."""

from collections.abc import Sequence

from ...engine.checks.check_folder import Check
from ...engine.store.outcomes import Outcomes
from ...engine.store.plans import find_failed
from ...intervals import share_interval
from .blocks import Said
from .headline import write_caveats

FEW = 0.1  # half the interval of a share of one half: with more images it is narrower


def list_missing(outcomes: Outcomes, checks: Sequence[Check]) -> tuple[Said, ...]:
    """A sentence for each thing that a reader of a finished evaluation would expect and that is not there."""
    lines = [Said(line, "warn", "provenance") for line in write_caveats(outcomes)]
    left_out = find_failed(outcomes.store)
    lines += [Said(f"Left out: {name}: {reason}.", "warn", "provenance") for name, reason in left_out.items()]
    lines += [Said(line, "warn") for line in _few_images(outcomes)]
    unknown = [check for check in checks if check.state == "unknown"]
    not_run = sum("--run" in check.advice or check.detail == "not run yet" for check in unknown)
    if unknown:
        rest = len(unknown) - not_run
        text = f"{not_run} of {len(checks)} checks were not run: `davylamp check FOLDER --run`." if not_run else ""
        text += f" {rest} {'more' if not_run else f'of {len(checks)} checks'} cannot be decided from these records."
        lines.append(Said(text.strip() if rest else text, "unknown", "trust"))
    if not (left_out or outcomes.failed or outcomes.running or outcomes.waiting or outcomes.damaged):
        lines.insert(
            len(outcomes.unsteady), Said(f"No cell is missing: all {len(outcomes.done)} have a result.", "pass")
        )
    return tuple(lines)


def _few_images(outcomes: Outcomes) -> list[str]:
    fewest = min((outcome.cell.subject.images for outcome in outcomes.done), default=0)
    low, high = share_interval(fewest / 2, fewest)
    if not fewest or (high - low) / 2 <= FEW:
        return []
    return [f"Few images: with {fewest}, the 95 % interval of a share near 50 % is ±{50 * (high - low):.0f} points."]
