"""Interprets the rows of a results table: subject, item and response of each row."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from ..conventions import largest_distance, original_of

Subjects = Literal["models", "attacks", "implementations", "defences"]
Per = Literal["attack", "implementation"]
Unequal = Literal["common", "keep"]
COLUMNS = ("cell", "model", "attack", "implementation", "image", "attacked", "success", "violated")
NAMED = 4  # names in a note
UNDEFENDED = "none"
_THREAT = ("norm", "epsilon", "targeted")
_RUN = (
    *("model", "original", "defence", "attack", "implementation", "library"),
    *(*_THREAT, "pixels", "target", "parameters", "seed"),
)


class Choices(NamedTuple):
    """Arguments of `responses.build_responses`: subjects to rank, and which responses count."""

    subjects: Subjects = "models"
    budget: float | None = None
    per: Per = "attack"
    unequal: Unequal = "common"
    original: str | None = None

    @property
    def of_models(self) -> bool:
        """Whether the subjects are attacked (models, defences). False if the subjects are attacks."""
        return is_of_models(self.subjects)


class ResultRows(NamedTuple):
    """Rows of a results table with their interpretation. All fields except `notes` have one entry per row.

    Attributes:
        rows: rows of the results table.
        labels: categorical columns. `subject` and `item` are the row and column of the response matrix, and `image` is
            the image of the item. `attempt` names the run on the image, of which an item may have several. `group` is
            the name of similar attempts in notes.
        value: response of each row, 1 in favour of the subject. For randomised models, the rate of samples in favour of
            the subject.
        missing: whether the response is unknown, bool.
        larger: whether the response is unknown because a fixed-budget attack fooled the model only at a distance above
            the budget, bool.
        notes: notes about the rows.
    """

    rows: Any
    labels: Any
    value: Any
    missing: Any
    larger: Any
    notes: list[str]

    def only(self, kept: np.ndarray) -> "ResultRows":
        """Return the selected rows.

        Args:
            kept: indices of the rows, or a bool mask.
        """
        rows, labels, value, missing, larger = (each[kept] for each in self[:-1])
        return ResultRows(rows, labels, value, missing, larger, self.notes)


def read_rows(results: Any, choices: Choices) -> ResultRows:
    """Check a results table, and interpret each row.

    Args:
        results: table with `COLUMNS` (see `build_responses`).
        choices: subjects to rank, and which responses count.

    Raises:
        ValueError: If columns are missing or a choice is invalid.
    """
    _check(results, choices)
    rows, notes = _without_worst_cases(results)
    if choices.subjects == "defences":
        rows, more = _add_defences(rows, choices.original)
        notes += more
    return ResultRows(rows, _label_rows(rows, choices), *_decide(rows, choices), notes)


def is_of_models(subjects: str) -> bool:
    """Return whether subjects of this kind are attacked (models, defences). False if the subjects are attacks."""
    return subjects in ("models", "defences")


def abbreviate_list(names: Sequence[str]) -> str:
    """Join the first `NAMED` names with commas, and add the number of further names."""
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + rest


def _check(results: Any, choices: Choices) -> None:
    absent = [column for column in COLUMNS if column not in results]
    if absent:
        raise ValueError(f"expected columns {', '.join(COLUMNS)}, but {', '.join(absent)} are missing")
    if not len(results):
        raise ValueError("the results table has no rows to rank")
    for name, known in {"subjects": Subjects, "per": Per, "unequal": Unequal}.items():
        given, (*others, last) = getattr(choices, name), get_args(known)
        if given not in (*others, last):
            raise ValueError(f"expected {name} {', '.join(others)} or {last}, got {given!r}")
    if choices.original is not None and choices.subjects != "defences":
        raise ValueError(f"`original` can be given only with subjects='defences', got subjects={choices.subjects!r}")
    if choices.budget is not None:
        _check_budget(results, choices.budget)


def _check_budget(results: Any, budget: Any) -> None:
    """Raise ValueError if a budget is invalid for the results.

    A budget needs distances in one norm, of examples that were made on the evaluated models.
    """
    if "made_on" in results and (results["made_on"] == "original").any():
        kind = "examples that were made on the undefended model"
        raise ValueError(
            f"a budget cannot be used with {kind}, because only distances for the undefended model are known; got "
            f"{budget}"
        )
    if isinstance(budget, bool) or not isinstance(budget, (int, float, np.number)) or not 0 < budget < np.inf:
        raise ValueError(f"expected a budget as a positive number, got {budget!r}")
    if "distance" not in results:
        raise ValueError("the results table has no column distance, which a budget needs")
    norms = sorted(set(results["norm"])) if "norm" in results else []
    if len(norms) > 1:
        raise ValueError(f"a budget needs results in one norm, got {', '.join(norms)}; choose one")


def _without_worst_cases(results: Any) -> tuple[Any, list[str]]:
    """Omit worst cases, because they repeat the results of their attacks.

    If there are only worst cases, all rows stay.
    """
    names = [name for name in results["attack"].unique() if str(name).startswith("worst-case(")]
    together = results["attack"].isin(names).to_numpy(bool)
    if not together.any() or together.all():
        return results, []
    why = "each attack of a worst case ran only on the images that the earlier attacks did not fool"
    return results[~together], [f"omitted: {abbreviate_list(names)}: {why}"]


def _add_defences(rows: Any, original: str | None) -> tuple[Any, list[str]]:
    """Add the columns `original` and `defence`, and omit undefended models without a defended model.

    Also return notes.
    """
    names = list(map(str, rows["model"].unique()))
    if original is None:
        pairs = {name: _split_defended(name, names) for name in names}
    elif original in names:
        pairs = {name: (original, name if name != original else UNDEFENDED) for name in names}
    else:
        raise ValueError(f"expected `original` as one of the models {', '.join(names)}, got {original!r}")
    originals = {base for base, defence in pairs.values() if defence != UNDEFENDED}
    if not originals:
        if alone := [name for name in names if "+" in name]:
            raise ValueError(f"the undefended model of {abbreviate_list(alone)} is missing; evaluate it as well")
        raise ValueError(
            "there are no defended models NAME+DEFENCE: evaluate models with defences, or "
            "give `original=NAME` if all other models are defended versions of NAME"
        )
    rest = [name for name, (base, defence) in pairs.items() if defence == UNDEFENDED and base not in originals]
    notes = [f"omitted: {abbreviate_list(rest)}: no model with this defence"] if rest else []
    rows = rows[~rows["model"].isin(rest)]
    ways = list(map(str, rows["made_on"].unique())) if "made_on" in rows else ["own"]
    if len(ways) > 1:
        raise ValueError(f"examples were made in different ways ({' and '.join(ways)}); rank them separately")
    notes.append(
        "responses to examples made on the original: the attacker did not know about the defence"
        if ways == ["original"]
        else "responses to examples made on each defended model"
    )
    base, defence = (rows["model"].map({name: pair[place] for name, pair in pairs.items()}) for place in (0, 1))
    return rows.assign(original=base, defence=defence), notes


def _split_defended(name: str, names: Sequence[str]) -> tuple[str, str]:
    """Split the name of a defended model into the names of the undefended model and the defence.

    A defence from a file is recognised even if the undefended model is not in `names`.
    """
    base = original_of(name, names)
    if base is not None:
        return base, name.removeprefix(f"{base}+")
    base, plus, defence = name.rpartition("+")
    return (base, defence) if plus and base and ".py:" in defence else (name, UNDEFENDED)


def _decide(rows: Any, choices: Choices) -> tuple[Any, Any, Any]:
    """Return three columns: the response, whether the response is missing, and whether the reason is a larger radius.

    The rule is consistent with `engine/store/image_results.py`.
    """
    attacked, success = rows["attacked"].astype(bool), rows["success"].astype(bool)
    fooled, larger = success.astype(float), pd.Series(data=False, index=rows.index)
    of_random = _is_random(rows)
    if of_random.any():
        fooled = rows["draws_fooled"].where(of_random, fooled)
    if choices.budget is not None:
        most = largest_distance(choices.budget, str(rows["norm"].iloc[0]) if "norm" in rows else "")
        far = success & (rows["distance"] > most)
        if of_random.any():  # a distance is stored only if most samples are fooled; otherwise a small radius implies it
            kept = rows["epsilon"].astype(float) <= most if "epsilon" in rows else False
            far |= of_random & ~success & (fooled > 0) & ~kept
        fooled = fooled.mask(far, 0.0)
        if "minimum_norm" in rows:
            larger = far & ~rows["minimum_norm"].astype(bool)
    value = (1 - fooled if choices.of_models else fooled).where(attacked & ~rows["violated"].astype(bool), 0.0)
    return value, _is_undecided(rows, choices) | larger | (False if choices.of_models else ~attacked), larger


def _is_undecided(rows: Any, choices: Choices) -> Any:
    """Return whether each row has an invalid result that was not caused by the ranked model or library."""
    violated = rows["violated"].astype(bool)
    blamed = "invalid_by_model" if choices.of_models else "invalid_by_library"
    return violated & ~rows[blamed].astype(bool) if blamed in rows else violated


def _is_random(rows: Any) -> Any:
    return rows["draws_fooled"].notna() if "draws_fooled" in rows else pd.Series(data=False, index=rows.index)


def _label_rows(rows: Any, choices: Choices) -> Any:
    # Texts are built once for each kind of row and each image, which are far fewer than rows.
    kind, first = _kinds_of_rows(rows, _RUN)
    place, shown = _kinds_of_rows(rows, ("data", "image"))
    images, labels = _join(shown, ("data", "image")).to_numpy(), _label_kinds(first, choices.subjects, choices.per)
    columns = {name: _categories(kind, labels[name].to_numpy()) for name in ("subject", "group")}
    columns["image"] = _categories(place, images)
    for name, column in (("item", "other"), ("attempt", "attempt")):
        other, others = pd.factorize(labels[column])
        pair, pairs = pd.factorize(place * len(others) + other[kind])
        texts = [f"{images[one // len(others)]} x {others[one % len(others)]}" for one in pairs]
        columns[name] = _categories(pair, np.array(texts, dtype=object))
    return pd.DataFrame(columns, index=rows.index)


def _label_kinds(rows: Any, subjects: str, per: str) -> Any:
    """Return the columns `subject`, `other` (item without the image), `attempt` and `group` for each kind of row."""
    finer = [name for name in ("pixels", "target") if name in rows and rows[name].nunique() > 1]
    if is_of_models(subjects):
        base = ("original",) if subjects == "defences" else ()
        subject = rows["defence" if subjects == "defences" else "model"].map(str)
        attempt = _join(rows, (*base, "implementation", *_THREAT, *finer, "parameters", "seed"))
        other, group = attempt, rows["implementation"].map(str).str.cat(_threat_texts(rows), sep=" ")
        if per == "attack":
            other = _join(rows, (*base, "attack", *_THREAT, *finer))
            other = _with(other, _differing_parameters(rows, other)).str.cat(_join(rows, ("seed",)), sep=" ")
        return pd.DataFrame({"subject": subject, "other": other, "attempt": attempt, "group": group})
    subject, threat = _join(rows, (subjects.removesuffix("s"),)), _threat_texts(rows)
    if threat.nunique() > 1:  # all names include the threat model, to avoid ambiguity
        subject = subject + " " + threat
    subject = _with(subject, _differing_parameters(rows, subject))
    library = ("library",) if subjects == "attacks" and per == "implementation" else ()
    other = _join(rows, ("model", *library, "seed"))
    return pd.DataFrame({"subject": subject, "other": other, "attempt": other, "group": rows["model"].map(str)})


def _categories(places: np.ndarray, texts: np.ndarray) -> pd.Categorical:
    """Return the text of each row as a categorical, from the index of each row's text.

    Equal texts become one category.
    """
    code, different = pd.factorize(texts)
    return pd.Categorical.from_codes(code[places], different)


def _kinds_of_rows(rows: Any, columns: Sequence[str]) -> tuple[np.ndarray, Any]:
    """Return the index of each row's kind, and the first row of each kind.

    Rows of the same kind agree in all those `columns` that exist.
    """
    known = [column for column in columns if column in rows]
    kind = rows.groupby(known, sort=False, dropna=False, observed=True).ngroup().to_numpy()
    first = rows.iloc[np.unique(kind, return_index=True)[1]]
    texts = {name: first[name].cat.categories.dtype for name in first.select_dtypes("category")}
    return kind, first.astype(texts)


def _differing_parameters(rows: Any, name: Any) -> Any:
    """Return for each row the parameters that differ between runs with the same name, such as "steps=10", or "".

    Only runs of the same implementation are compared, because libraries have different parameters for the same attack.
    """
    if "parameters" not in rows:
        return pd.Series("", index=rows.index)
    runs: Any = pd.DataFrame({"name": name, "implementation": rows["implementation"], "parameters": rows["parameters"]})
    texts = {}
    for label, settings in runs.drop_duplicates().groupby("name", sort=False):
        each = {text: _read_parameters(text) for text in settings["parameters"].unique()}
        varied = set()
        for _, several in settings.groupby("implementation", sort=False)["parameters"]:
            known = [each[text] for text in several]
            varied |= {key for one in known for key in one if len({str(other.get(key)) for other in known}) > 1}
        for text, values in each.items():
            shown = [f"{key}={value}" if key else str(value) for key, value in values.items() if key in varied]
            texts[label, text] = ", ".join(shown)
    pairs = zip(name, rows["parameters"], strict=True)
    return pd.Series([texts[pair] for pair in pairs], index=rows.index, dtype=object)


def _read_parameters(text: Any) -> dict[str, Any]:
    """Parse parameters from JSON. A text that is not a JSON object is stored under the key ""."""
    try:
        values = json.loads(text)
    except (TypeError, ValueError):
        values = None
    return values if isinstance(values, dict) else {"": text}


def _with(name: Any, detail: Any) -> Any:
    return name.where(detail == "", name + " " + detail)


def _threat_texts(rows: Any) -> Any:
    """Return norm, radius and goal of each row, such as "linf 0.03137", "l2" or "linf 0.03137 targeted"."""
    spellings = {
        "norm": str,
        "epsilon": lambda radius: "" if pd.isna(radius) else f" {radius:.4g}",
        "targeted": lambda targeted: " targeted" if targeted else "",
    }
    texts = [rows[column].map(spell) for column, spell in spellings.items() if column in rows]
    return texts[0].str.cat(texts[1:]) if texts else pd.Series("", index=rows.index)


def _join(rows: Any, columns: Sequence[str]) -> Any:
    texts = [rows[column].map(str) for column in columns if column in rows]
    return texts[0].str.cat(texts[1:], sep=" ") if texts else pd.Series("", index=rows.index)


def notes_on_rows(rows: Any, choices: Choices) -> list[str]:
    """Return notes on the rows that count: missing responses, repeated attempts, and results that are ranked together.

    Args:
        rows: rows of the results table.
        choices: subjects to rank, and which responses count.
    """
    missing, (subjects, _, per, *_), of_models = int(_is_undecided(rows, choices).sum()), choices, choices.of_models
    blamed = int(rows["violated"].astype(bool).sum()) - missing
    notes = [f"{missing} of {len(rows)} responses are missing, because their results are invalid"] if missing else []
    if blamed:
        fault = "the model had no finite or stable output" if of_models else "the library returned invalid results"
        notes.append(f"{blamed} of {len(rows)} responses count against the {subjects}: {fault}")
    if subjects != "implementations" and "library" in rows:
        notes += _notes_on_libraries(rows, subjects, per)
    if not of_models:
        threats = [
            str(threat).strip() for threat in _threat_texts(_kinds_of_rows(rows, ("model", *_THREAT))[1]).unique()
        ]
        if len(threats) > 1:
            why = "the threat models are not equally hard, so the ranking depends not only on the attacks"
            notes.append(f"ranked together: {abbreviate_list(threats)}: {why}")
    if random := list(map(str, rows.loc[_is_random(rows), "model"].unique())):
        notes.append(
            f"random: {abbreviate_list(random)}: evaluated on many samples; means and Borda counts use the rates over "
            "samples, the item response model uses one draw of each response"
        )
    mixed = []
    if "knowledge" in rows and rows["knowledge"].nunique() > 1:
        mixed.append(" and ".join(f"{kind} ({count})" for kind, count in rows["knowledge"].value_counts().items()))
    if "targeted" in rows and rows["targeted"].nunique() > 1:
        mixed.append(f"targeted ({int(rows['targeted'].sum())}) and untargeted")
    if mixed:
        notes.append(f"responses to different kinds of attacks are ranked together: {'; '.join(mixed)}")
    return notes


def _notes_on_libraries(rows: Any, subjects: str, per: str) -> list[str]:
    """Return notes on attacks that several libraries ran: each library counts, or only the strongest library."""
    libraries = rows.groupby("attack", sort=False, observed=True)["library"].unique()
    several = [f"{attack} ({', '.join(sorted(names))})" for attack, names in libraries.items() if len(names) > 1]
    if not several:
        return []
    if per == "implementation":
        return [f"an attack counts once for each library: {'; '.join(several)}"]
    words = {"norm": "norm", "epsilon": "radius", "seed": "seed"}
    counts = {name: rows.groupby("attack", observed=True)[name].nunique() for name in words if name in rows}
    again = " and ".join(words[name] for name, count in counts.items() if count.max() > 1)
    often = f"once for each {again}" if again else "once"
    notes = [f"an attack counts {often}, the strongest of its libraries on each image: {'; '.join(several)}"]
    if subjects == "attacks" and len(several) < len(libraries):
        notes.append("attacks that ran in more libraries had more attempts at each image")
    return notes
