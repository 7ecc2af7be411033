"""Finds the paper's models and data sets that correspond to evaluated models and data."""

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
    """The paper's model with which an evaluated model is compared.

    Args:
        row: the paper's name of the model. "" if the evaluated model corresponds to no model of the paper.
        same: whether the evaluated model is the paper's model. False if it is a replacement.
    """

    row: str = ""
    same: bool = False


Recognise = Callable[[str], Counterpart]


def no_counterpart(_: str) -> Counterpart:
    """Return the `Counterpart` of a model that corresponds to no model of the paper."""
    return Counterpart()


class Pairing(NamedTuple):
    """The paper's models and data set that correspond to the models and data of an evaluation.

    Args:
        models: the paper's model, by name of the evaluated model.
        papers: the paper's names of all its models.
        data_set: data set of the evaluated images. `UNKNOWN` if not known.
        complete: whether the setting defines that the evaluated models are the paper's models.
    """

    models: Mapping[str, Counterpart]
    papers: tuple[str, ...] = ()
    data_set: str = UNKNOWN
    complete: bool = False

    def why_other(self, model: str | None, row: str | None, data_set: str) -> str:
        """Return the reason why a computed number is not comparable with a published number; "" if it is comparable.

        The numbers are comparable if both are for the same models and the same data.

        Args:
            model: name of the evaluated model. None if the computed number is a mean over all models.
            row: the paper's name of the model. None if the published number is a mean over all models.
            data_set: data set of the published number. "" if not recorded.
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
        """Return a sentence that says which models and data replace those of the paper.

        Args:
            data: name of the evaluated data.
            data_sets: data sets of the published numbers.
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
    """Return the data set of a name of data, such as "CIFAR-10" for "torchvision:cifar10"; "" if unknown.

    If the name has a corruption, the result has the corruption as well.
    """
    clean, plus, corruption = data.partition("+")
    source, _, rest = clean.partition(":") if ":" in clean else ("", "", clean)
    if source not in ("", "demo", "foolbox", "torchvision"):
        return ""
    name = _DATA_SETS.get(rest.partition(":")[0], "")
    return f"{name}{plus}{corruption}" if name else ""


def split_rows(rows: Mapping[str, Any]) -> tuple[dict[str, Any], str, Any]:
    """Split the user's assignments (option --as) into models and data.

    Args:
        rows: name of an evaluated model by the paper's name of the model, or name of data by the name of a data set.

    Returns:
        The evaluated models by the paper's names, the name of the data set, and the name of the evaluated data. Parts
        that the user did not assign are empty.

    Raises:
        InvalidInput: If more than one data set is assigned.
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
    """Return the paper's model that corresponds to each evaluated model, by name of the evaluated model.

    If the user has assigned a model of the paper, this model is used. Otherwise, if the paper has a model of the same
    name, this model is used. Otherwise, `recognise` decides.

    Args:
        models: names of the evaluated models.
        said: the user's assignments: name of the evaluated model, by the paper's name of the model.
        papers: the paper's names of all its models.
        recognise: function that returns the paper's model for the name of an evaluated model.
        aliases: the paper's name of a model, by a further name of the model.

    Raises:
        UnknownName: If the user has assigned a model that the paper does not have or that is not evaluated.
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
