"""The paper's models and data sets that ours are, or stand in for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import InvalidInput, UnknownName

# Data set of a name of data, without source, path and corruption.
_DATA_SETS: Mapping[str, str] = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "digits": "digits",
    "imagenet": "ImageNet",
    "mnist": "MNIST",
    "svhn": "SVHN",
    "tiny-imagenet": "Tiny-ImageNet",
}
DATA = "data"  # stands for the paper's data set where its name is not recorded
UNKNOWN = "unknown data"


class Counterpart(NamedTuple):
    """The paper's model that ours is compared with.

    Args:
        row: the paper's name; "" if the paper has no such model.
        same: whether ours is that model, not a stand-in for it.
    """

    row: str = ""
    same: bool = False


Recognise = Callable[[str], Counterpart]


def no_counterpart(_: str) -> Counterpart:
    """Return no counterpart, whatever the model."""
    return Counterpart()


class Pairing(NamedTuple):
    """What the user said, or what names say, about our models and data.

    Args:
        models: our model -> the paper's.
        papers: the paper's models.
        data_set: the data set of our data; `UNKNOWN` if nothing says it.
        complete: whether all models are the paper's, by definition of the setting.
    """

    models: Mapping[str, Counterpart]
    papers: tuple[str, ...] = ()
    data_set: str = UNKNOWN
    complete: bool = False

    def why_other(self, model: str | None, row: str | None, data_set: str) -> str:
        """Return why our number is not of the paper's model and data; "" if it is.

        Args:
            model: our model, None for all.
            row: the paper's model, None for all.
            data_set: the paper's data set, "" if not recorded.
        """
        wanted = data_set or DATA
        if self.data_set != wanted:
            return f"{self.data_set}, not {wanted}" if data_set else "other data"
        if self.complete:
            return ""
        ours = [self.models.get(model, Counterpart())] if model is not None else [*self.models.values()]
        theirs = {row} if row is not None else {*self.papers}
        covered = {each.row for each in ours if each.same}
        if covered == theirs and all(each.same for each in ours):
            return ""
        return "other model" if model is not None else f"{len(covered & theirs)} of {len(theirs)} models"

    def sentence(self, data: str, data_sets: Iterable[str]) -> str:
        """Return what stands in for what, in one sentence.

        Args:
            data: name of our data.
            data_sets: the paper's data sets.
        """
        others = {} if self.complete else {name: each for name, each in self.models.items() if not each.same}
        parts = [f"{name} for {each.row}" for name, each in others.items() if each.row]
        nameless = [name for name, each in others.items() if not each.row]
        if nameless:
            parts.append(f"{', '.join(nameless)} for no model of the paper")
        sets = [name or DATA for name in data_sets]
        if self.data_set not in sets:
            parts.append(f"{data} for {' and '.join(sets) if sets != [DATA] else 'its data'}")
        return f"Stand-ins: {'; '.join(parts)}." if parts else "Models and data are the paper's."


def data_set_of(data: str) -> str:
    """Return the data set of samples by their name, with a corruption; "" if unknown."""
    clean, plus, corruption = data.partition("+")
    source, _, rest = clean.partition(":") if ":" in clean else ("", "", clean)
    if source not in ("", "demo", "foolbox", "torchvision"):
        return ""
    name = _DATA_SETS.get(rest.partition(":")[0], "")
    return f"{name}{plus}{corruption}" if name else ""


def split_rows(rows: Mapping[str, Any]) -> tuple[dict[str, Any], str, Any]:
    """Split what the user said into models (the paper's name -> ours), the data set, and our data; "" for none.

    Raises:
        InvalidInput: If more than one data set is named.
    """
    sets = {name: ours for name, ours in rows.items() if name in (DATA, *_DATA_SETS.values())}
    if len(sets) > 1:
        raise InvalidInput(f"expected one data set, got {' and '.join(sets)}")
    data_set, data = next(iter(sets.items()), ("", ""))
    return {name: ours for name, ours in rows.items() if name not in sets}, data_set, data


def pair_models(
    models: Sequence[str],
    said: Mapping[str, str],
    papers: Sequence[str],
    recognise: Recognise,
    aliases: Mapping[str, str],
) -> dict[str, Counterpart]:
    """Return the counterpart of each of our models: what the user said, its own name, or what its name means.

    Args:
        models: names of our models.
        said: the paper's name -> ours.
        papers: the paper's names.
        recognise: counterpart by the name of a model.
        aliases: further names of the paper's models.

    Raises:
        UnknownName: If the paper has no such model, or we have not.
    """
    pairs: dict[str, Counterpart] = {}
    for name, ours in said.items():
        row = _row(name, papers, aliases)
        if row is None:
            raise UnknownName("row of the paper", name, [*papers, *_DATA_SETS.values()])
        if ours not in models:
            raise UnknownName("model", ours, models)
        pairs[ours] = Counterpart(row, same=True)
    for ours in models:
        row = _row(ours, papers, aliases)
        pairs.setdefault(ours, recognise(ours) if row is None else Counterpart(row, same=True))
    return {name: pairs[name] for name in models}


def _row(name: str, papers: Sequence[str], aliases: Mapping[str, str]) -> str | None:
    return next((each for each in (name, aliases.get(name)) if each in papers), None)
