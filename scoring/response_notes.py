"""What a reader of responses should know first: what is missing, what counts once, what is ranked together."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from .row_names import THREAT, row_kinds, threat_texts

NAMED = 4  # that a note names
_OF_MODELS = ("models", "defences")


def notes_of_rows(rows: Any, subjects: str, per: str) -> list[str]:
    """What is missing, what counts once or more than once, and what is thrown together."""
    hidden, notes = int(is_undecided(rows, subjects).sum()), []
    blamed = int(rows["violated"].astype(bool).sum()) - hidden
    if hidden:
        notes.append(f"{hidden} of {len(rows)} responses are missing: the result is invalid")
    if blamed:
        fault = "the model gave no finite or no stable answer" if subjects in _OF_MODELS else "the library broke a rule"
        notes.append(f"{blamed} of {len(rows)} responses count against the {subjects}: {fault}")
    if subjects != "implementations" and "library" in rows:
        libraries = rows.groupby("attack", sort=False, observed=True)["library"].unique()
        several = [f"{attack} ({', '.join(sorted(names))})" for attack, names in libraries.items() if len(names) > 1]
        if several and per == "attack":
            often = f"once{_for_each(rows)}"
            notes.append(
                f"an attack counts {often}, the strongest of its libraries on each image: {'; '.join(several)}"
            )
            if subjects == "attacks" and len(several) < len(libraries):
                notes.append("attacks that ran in more libraries had more tries at each image")
        elif several:
            notes.append(f"an attack counts once for each library: {'; '.join(several)}")
    mixed = []
    if "knowledge" in rows and rows["knowledge"].nunique() > 1:
        mixed.append(" and ".join(f"{kind} ({count})" for kind, count in rows["knowledge"].value_counts().items()))
    if "targeted" in rows and rows["targeted"].nunique() > 1:
        mixed.append(f"targeted ({int(rows['targeted'].sum())}) and untargeted")
    notes += _notes_on_kinds(rows, subjects)
    if mixed:
        notes.append(f"responses to different kinds of attacks are ranked together: {'; '.join(mixed)}")
    return notes


def is_undecided(rows: Any, subjects: str) -> Any:
    """Rows whose result is invalid and no fault of the subject: of models their own, else the library's; by label."""
    violated = rows["violated"].astype(bool)
    blamed = "invalid_by_model" if subjects in _OF_MODELS else "invalid_by_library"
    return violated & ~rows[blamed].astype(bool) if blamed in rows else violated


def _notes_on_kinds(rows: Any, subjects: str) -> list[str]:
    """Which models are random, and which threat models the subjects themselves differ in."""
    notes = []
    if subjects in ("attacks", "implementations"):
        threats = [str(threat).strip() for threat in threat_texts(row_kinds(rows, ("model", *THREAT))[1]).unique()]
        if len(threats) > 1:
            why = "these threat models are not equally hard, so the order is not of the attacks alone"
            notes.append(f"ranked together: {some_of(threats)}: {why}")
    random = list(map(str, rows.loc[is_random(rows), "model"].unique()))
    if random:
        notes.append(
            f"random: {some_of(random)}: judged by many draws; means and Borda counts are of the shares of draws, the "
            "item response model has one draw of each response"
        )
    return notes


def _for_each(rows: Any) -> str:
    """What an attack counts again for: " for each radius and seed"; empty where it ran under one of each."""
    words = {"norm": "norm", "epsilon": "radius", "seed": "seed"}
    counts = {name: rows.groupby("attack", observed=True)[name].nunique() for name in words if name in rows}
    again = [words[name] for name, count in counts.items() if count.max() > 1]
    return f" for each {' and '.join(again)}" if again else ""


def is_random(rows: Any) -> Any:
    """Whether each row is of a model that draws random numbers."""
    return rows["draws_fooled"].notna() if "draws_fooled" in rows else pd.Series(data=False, index=rows.index)


def some_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + rest
