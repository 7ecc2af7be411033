"""The surrogate of an evaluation: loaded once, to hash it, and set against each model that is judged."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.models.ensemble import ensemble_name, ensemble_of
from ...adapters.models.identity.digest import identify_model
from ...adapters.running.surrogate import check_surrogate
from ...errors import InvalidInput
from ..cell import ModelOnData, Surrogate
from ..sources import LOADED_HERE, Loading, ModelSource
from .config import AttackChoice, Config


class LoadedSurrogate(NamedTuple):
    """What examples are made on.

    Args:
        sources: where its members come from; empty: there is none, examples are made on the model itself.
        identities: name and digest of each member.
        classifier: the member, or the mean of the members' logits.
        unknown: by name of a member, why it cannot be known in full.
    """

    sources: tuple[ModelSource, ...] = ()
    identities: tuple[Surrogate, ...] = ()
    classifier: Classifier | None = None
    unknown: Mapping[str, str] = {}

    @property
    def via(self) -> str:
        """As `Cell.via`; "" without a surrogate."""
        return f" via {ensemble_name([each.model for each in self.identities])}" if self.identities else ""

    @property
    def is_random(self) -> bool | None:
        """Whether it draws random numbers; None: there is none."""
        return None if self.classifier is None else self.classifier.random

    def check(self, subject: ModelOnData, classifier: Classifier, data: Data) -> None:
        """Raise InvalidInput where examples of the surrogate say nothing about a model; nothing without a surrogate."""
        if self.classifier is None:
            return
        same = [each.model for each in self.identities if each.model_digest == subject.model_digest]
        if same:
            raise InvalidInput(
                f"expected a surrogate other than the model, got {same[0]}: on itself it is a white-box attack; "
                "evaluate it without a surrogate"
            )
        check_surrogate(classifier, self.classifier, data.inputs[:1].to(classifier.device))


NO_SURROGATE = LoadedSurrogate()


def surrogate_names(config: Config, choice: AttackChoice) -> tuple[str, ...]:
    """The models that a choice's examples are made on; empty: on each model itself.

    The config's, unless attacks name their own: of those it takes the place, and the others stay white-box.
    """
    if any(each.surrogate for each in config.attacks) and not choice.surrogate:
        return ()
    return tuple(dict.fromkeys(config.surrogate or choice.surrogate))


def load_surrogates(
    config: Config, models: Mapping[str, Classifier] | None = None, loading: Loading = LOADED_HERE
) -> dict[tuple[str, ...], LoadedSurrogate]:
    """What the examples of a config are made on, by names; () is the model itself.

    Args:
        config: what to do.
        models: classifiers by name, in place of loading those names.
        loading: how the others are loaded by name.

    Raises:
        DavylampError: if one cannot be loaded.
    """
    return {names: _load(names, models or {}, loading) for names in _sets_of(config)}


def check_surrogates(
    config: Config,
    surrogates: Mapping[tuple[str, ...], LoadedSurrogate],
    subject: ModelOnData,
    classifier: Classifier,
    data: Data,
) -> tuple[dict[tuple[str, ...], LoadedSurrogate], dict[str, str]]:
    """The surrogates whose examples say something about a model, and why the others say nothing, by what is left out.

    Raises:
        InvalidInput: if none does.
    """
    usable, refused = {}, {}
    for names, surrogate in surrogates.items():
        try:
            surrogate.check(subject, classifier, data)
        except InvalidInput as error:
            if len(surrogates) == 1:
                raise
            attacks = dict.fromkeys(each.attack for each in config.attacks if surrogate_names(config, each) == names)
            refused[f"{', '.join(attacks)}{surrogate.via} on {subject.model}"] = str(error)
        else:
            usable[names] = surrogate
    return usable, refused


def sources_of(surrogates: Iterable[LoadedSurrogate]) -> dict[tuple[Surrogate, ...], tuple[ModelSource, ...]]:
    """Where the members of each come from, by their identities."""
    return {each.identities: each.sources for each in surrogates}


def _sets_of(config: Config) -> list[tuple[str, ...]]:
    return [*dict.fromkeys(surrogate_names(config, choice) for choice in config.attacks)]


def _load(names: tuple[str, ...], models: Mapping[str, Classifier], loading: Loading) -> LoadedSurrogate:
    sources = tuple(ModelSource(name, models.get(name), loading) for name in names)
    if not sources:
        return NO_SURROGATE
    loaded = [source.load("cpu" if source.classifier is None else str(source.classifier.device)) for source in sources]
    known = [identify_model(classifier, name) for classifier, name in zip(loaded, names, strict=True)]
    identities = tuple(Surrogate(name, each.digest) for name, each in zip(names, known, strict=True))
    unknown = {name: "; ".join(each.reasons) for name, each in zip(names, known, strict=True) if each.reasons}
    return LoadedSurrogate(sources, identities, ensemble_of(loaded), unknown)
