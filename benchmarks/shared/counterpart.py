"""The paper's models and data sets that correspond to the evaluated ones."""

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
        row: the paper's name of the model. "" if the paper has no such model.
        same: whether the evaluated model is that model, rather than a replacement.
    """

    row: str = ""
    same: bool = False


Recognise = Callable[[str], Counterpart]


def no_counterpart(_: str) -> Counterpart:
    """Return the `Counterpart` of a model that the paper does not have."""
    return Counterpart()


class Pairing(NamedTuple):
    """Which of the paper's models and data sets the evaluated ones correspond to, by the user's choice or by name.

    Args:
        models: counterpart in the paper, by evaluated model.
        papers: the paper's models.
        data_set: data set of the evaluated images. `UNKNOWN` if it is not known.
        complete: whether all models are the paper's, by definition of the setting.
    """

    models: Mapping[str, Counterpart]
    papers: tuple[str, ...] = ()
    data_set: str = UNKNOWN
    complete: bool = False

    def why_other(self, model: str | None, row: str | None, data_set: str) -> str:
        """Return why a computed number is not for the paper's model and data, or "" if it is.

        Args:
            model: evaluated model. None for all.
            row: the paper's model. None for all.
            data_set: the paper's data set. "" if not recorded.
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
        """Describe in one sentence which models and data replace the paper's.

        Args:
            data: name of the evaluated data.
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
    """Return the data set that a name of samples refers to, also with a corruption, or "" if unknown."""
    clean, plus, corruption = data.partition("+")
    source, _, rest = clean.partition(":") if ":" in clean else ("", "", clean)
    if source not in ("", "demo", "foolbox", "torchvision"):
        return ""
    name = _DATA_SETS.get(rest.partition(":")[0], "")
    return f"{name}{plus}{corruption}" if name else ""


def split_rows(rows: Mapping[str, Any]) -> tuple[dict[str, Any], str, Any]:
    """Split the user's assignments into models (by the paper's name), the data set, and the evaluated data.

    Parts that are not given are empty.

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
    """Return the counterpart in the paper for each evaluated model.

    The user's choice comes first, then the paper's model of the same name, then the result of `recognise`.

    Args:
        models: names of the evaluated models.
        said: the user's choice: evaluated model by the paper's name.
        papers: the paper's names.
        recognise: returns the counterpart for the name of a model.
        aliases: further names of the paper's models.

    Raises:
        UnknownName: If the paper has no such model, or no such model is evaluated.
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
