"""What defences came to under attacks that adapt to them: the verdicts of `davylamp challenge`."""

import math
from collections.abc import Sequence
from typing import Any

from ...adapters.result import UNSTEADY
from ...adapters.words import radius_text
from ...engine.challenge.attempts import PARTS
from ...engine.challenge.document import lead_of
from ...engine.statistics.bootstrap import Estimate
from ..parts.blocks import Column, Entry, PageTable, Section, Text, badge, make_table

_STATES = {"falls": "fail", "masks": "warn", "holds": "pass", "unknown": "unknown"}


def write_challenges(documents: Sequence[dict[str, Any]]) -> Section | None:
    """The verdict of each defence, every attack on it, and how its accuracy falls with the radius; None without any."""
    if not documents:
        return None
    blocks: list[Any] = []
    for place, document in enumerate(documents):
        style = {"falls": "warn", "masks": "warn", "unknown": "warn"}.get(document["verdict"], "lead")
        blocks.append(Text(f"{document['model']}: {document['sentence']}.", style))
        blocks += [Text(f"{line[0].upper()}{line[1:]}.") for line in lead_of(document) if line != UNSTEADY]
        blocks += [_attempts(place, document), _radii(place, document)]
    lead = (
        "Attacks adapted to the defence: gradient attacks through every way that gradients can pass it (BPDA, EOT), "
        "examples of other models, score-based and decision-based attacks, and larger radii (Carlini et al. 2019; "
        "Tramer et al. 2020). An image counts as correct only if no attack fools it. No attack was designed for this "
        "particular defence."
    )
    table = make_table(
        "challenge-verdicts",
        "Verdicts",
        ("verdict", "model", "radius", "clean accuracy", "accuracy in the worst case", "undefended, worst case"),
        [
            (
                badge(_STATES.get(each["verdict"], "unknown"), "not judged" if each["verdict"] == "unknown" else ""),
                each["model"],
                f"{each['norm']} {radius_text(each['norm'], each['epsilon'])}",
                *(_entry(each[name]) for name in ("clean", "worst", "undefended")),
            )
            for each in documents
        ],
        note="pass: the defence holds against these attacks. warn: signs of masked gradients. fail: it falls. "
        "not judged: results that a verdict needs are missing.",
    )
    return Section("challenge", "Challenge: adaptive attacks on a defence", lead, (table, *blocks))


def _attempts(place: int, document: dict[str, Any]) -> PageTable:
    rows = [
        (
            PARTS.get(each["part"], each["part"]),
            each["attack"],
            each["made_on"],
            each["gradients"] or "as named",
            radius_text(document["norm"], each["epsilon"]),
            _entry(each["accuracy"]) if each["accuracy"] else Entry(f"failed: {each['error']}", kind="unknown"),
            ", ".join(f"{count} {kind}" for kind, count in sorted(each["violations"].items())),
        )
        for each in document["attempts"]
    ]
    columns = (
        "attacker",
        "attack",
        Column("made on", "the model that the attack was run on; the examples are judged on the defended one"),
        Column("gradients", "how they are passed through the defence"),
        "radius",
        Column("accuracy", "share of all images that are correct under this attack, with its 95 % interval"),
        "violations",
    )
    return make_table(f"challenge-{place}", f"Attacks on {document['model']}", columns, rows)


def _radii(place: int, document: dict[str, Any]) -> PageTable:
    rows = [(radius_text(document["norm"], each["epsilon"]), _entry(each)) for each in document["radii"]]
    return make_table(
        f"challenge-radii-{place}",
        f"Accuracy of {document['model']} at larger radii",
        ("radius", "accuracy in the worst case"),
        rows,
        note="A defence whose accuracy never reaches 0 masks its gradients. -: no attack gave a result at this radius.",
    )


def _entry(share: dict[str, Any] | None) -> Any:
    if share is None or share["value"] is None:
        return Entry("-")
    low, high = (math.nan if share[name] is None else share[name] for name in ("low", "high"))
    return Estimate(share["value"], low, high, share["n"])
