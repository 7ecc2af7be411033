"""Two tables of results as one, in which a name means one model, one image and one attack."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

NEW = " (new)"  # after the name of what is another thing in the new results
_NAMED = 4  # that a note names


class Aligned(NamedTuple):
    """Rows of both tables, with a column `new`; and a line for whatever is not the same though its name is."""

    results: pd.DataFrame
    notes: tuple[str, ...]


def align_results(baseline: pd.DataFrame, new: pd.DataFrame) -> Aligned:
    """Put new results under those of a baseline, so that equal names mean equal things.

    A model of the same name and another digest, and a user's attack of the same name and other code, get a name of
    their own. Images of the same data (`data_digest`) are the same by whatever name; without that they are if the data
    has the same name, and a note says so. Where an image of the same name has another label, the data is another.

    Args:
        baseline: of `davylamp.engine.load`, or with `scoring.responses.COLUMNS`; digests and versions where known.
        new: with the same columns.

    Returns:
        Both.
    """
    notes: list[str] = []
    baseline, new = _plain(baseline), _plain(new)
    new = _name_models(baseline, new, notes)
    new = _name_code(baseline, new, notes)
    new = _name_data(baseline, new, notes)
    rows = pd.concat([baseline.assign(new=False), new.assign(new=True)], ignore_index=True)
    return Aligned(rows, tuple(notes))


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Texts as such, where they are categories: names are changed, and those of both put together."""
    return rows.astype(dict.fromkeys(rows.select_dtypes("category"), object))


def _name_models(baseline: Any, new: Any, notes: list[str]) -> Any:
    if "model_digest" not in baseline or "model_digest" not in new:
        return new
    other = _changed(baseline, new, "model", "model_digest")
    if other:
        notes.append(f"of the same name, but not the model of the baseline: {_some(other)}")
    return new.assign(model=new["model"].map(lambda name: f"{name}{NEW}" if name in other else name))


def _name_code(baseline: Any, new: Any, notes: list[str]) -> Any:
    """A user's attack is another one if its code is; a library of another version is the same, and a note says so."""
    if "version" not in baseline or "version" not in new:
        return new
    other = _changed(baseline, new, "implementation", "version")
    theirs, ours = (dict(zip(each["implementation"], each["version"], strict=True)) for each in (baseline, new))
    code = [name for name in other if "code " in f"{theirs[name]}{ours[name]}"]
    if code:
        notes.append(f"of the same name, but not the code of the baseline: {_some(code)}")
    versions = {f"{name}: {ours[name]} here, {theirs[name]} there" for name in other if name not in code}
    if versions:
        notes.append(f"run by another version than the baseline: {_some(sorted(versions))}")
    mark = new["implementation"].isin(code)
    return new.assign(
        **{name: new[name].where(~mark, new[name].map(str) + NEW) for name in ("attack", "implementation")}
    )


def _name_data(baseline: Any, new: Any, notes: list[str]) -> Any:
    if "data" not in baseline or "data" not in new:
        return new
    digests = "data_digest" in baseline and "data_digest" in new
    names = dict(zip(baseline["data_digest"], baseline["data"], strict=True)) if digests else {}
    same = new["data_digest"].map(names) if digests else pd.Series(np.nan, index=new.index)
    new = new.assign(data=same.where(same.notna(), new["data"]))
    shared = set(new.loc[same.isna(), "data"]) & set(baseline["data"])
    if "label" in new and "label" in baseline:
        for name in sorted(shared):
            labels: Any = _labels(new[same.isna() & (new["data"] == name)]), _labels(baseline[baseline["data"] == name])
            both = labels[0].index.intersection(labels[1].index)
            odd = both[(labels[0][both] != labels[1][both]).to_numpy()]
            if len(odd):
                shared.remove(name)
                image = odd[0]
                pair = f"{labels[0][image]} here and {labels[1][image]} there"
                notes.append(f"of the same name, but not the data of the baseline: {name} (label of {image}: {pair})")
                new = new.assign(data=new["data"].where(same.notna() | (new["data"] != name), name + NEW))
    if shared and digests:
        notes.append(
            f"images of {_some(sorted(shared))} are matched by name: as a set they are not those of the baseline"
        )
    return new


def _labels(rows: Any) -> Any:
    return rows.drop_duplicates("image").set_index("image")["label"]


def _changed(baseline: Any, new: Any, name: str, what: str) -> list[str]:
    """Names that both have, and that mean nothing in the new results that they mean in the baseline."""
    meant = baseline.groupby(name, observed=True)[what].agg(set)
    return [
        str(each)
        for each, values in new.groupby(name, observed=True)[what].agg(set).items()
        if each in meant.index and not values & meant[each]
    ]


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
