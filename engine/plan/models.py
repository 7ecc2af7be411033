"""The models of a plan: surrogates, loaded once to hash them; and which cells ask a model for what it does not give."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...adapters import Classifier, Implementation
from ...adapters.attack import RunSetting
from ...adapters.catalogue.lookup import why_not_on
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.data.datasets import Data
from ...adapters.models.ensemble import ensemble_name, mean_logit_ensemble
from ...adapters.models.identity.digest import identify_model
from ...adapters.running.precision import precision_error
from ...adapters.running.requirements import detect_output_format, has_gradients, missing_requirement, why_no_layers
from ...adapters.running.surrogate import check_surrogate
from ...adapters.running.targets import target_rule_error, why_no_class
from ...errors import InvalidInput, ModelFailed, Unsupported
from ..attack_run import AttackRun, ModelOnData, Surrogate
from ..attack_shard import precisions_of
from ..sources import LOADED_HERE, LoadOptions, ModelSource
from .config import AttackChoice, Config

_NAMED = 3  # attacks that are named of those that are refused for one reason
_GIVES = "the model gives"  # in reasons that another kind of attack does not meet


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
        """What titles add where examples are made on it, " via SURROGATE"; "" without a surrogate."""
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
    config: Config, models: Mapping[str, Classifier] | None = None, loading: LoadOptions = LOADED_HERE
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


def _load(names: tuple[str, ...], models: Mapping[str, Classifier], loading: LoadOptions) -> LoadedSurrogate:
    sources = tuple(ModelSource(name, models.get(name), loading) for name in names)
    if not sources:
        return NO_SURROGATE
    loaded = [source.load("cpu" if source.classifier is None else str(source.classifier.device)) for source in sources]
    known = [identify_model(classifier, name) for classifier, name in zip(loaded, names, strict=True)]
    identities = tuple(Surrogate(name, each.digest) for name, each in zip(names, known, strict=True))
    unknown = {name: "; ".join(each.reasons) for name, each in zip(names, known, strict=True) if each.reasons}
    return LoadedSurrogate(sources, identities, mean_logit_ensemble(loaded), unknown)


def supported_runs(
    cells: Iterable[tuple[int, AttackRun]],
    classifier: Classifier,
    surrogate: Classifier | None,
    data: Data,
    *,
    refused: dict[str, str],
) -> list[tuple[int, AttackRun]]:
    """The cells that the model can be asked for.

    Args:
        cells: of one model, each with its place in the config.
        classifier: the model.
        surrogate: what their examples are made on; None: on the model itself.
        data: its images, of which one is asked about, and labels.
        refused: where it is noted why the model cannot be asked for the others, by attack and model.
    """
    if surrogate is not None:
        surrogate.answers.expect_labels(data.labels)
    kept: list[tuple[int, AttackRun]] = []
    known: dict[tuple[object, ...], str] = {}
    classes = cache(lambda asked: asked.num_classes or asked.predict_logits(data.inputs[:1].to(asked.device)).shape[1])
    for place, cell in cells:
        asked = cell.attack, cell.threat_model, cell.target, precisions_of(cell), str(cell.parameters)
        if asked not in known:
            known[asked] = _why_not(cell, classifier, surrogate, data.inputs[:1], classes)
        if known[asked]:
            refused[f"{cell.title} on {cell.subject.model}"] = known[asked]
        else:
            kept.append((place, cell))
    return kept


def runs_or_error(cells: dict[str, AttackRun], refused: dict[str, str]) -> dict[str, AttackRun]:
    """The cells, by key; Unsupported if none is left, as models do not give or cannot do what the attacks ask for."""
    if refused and not cells:
        names: dict[str, list[str]] = {}
        for name, why in refused.items():
            names.setdefault(why, []).append(name)
        lines = (f"{', '.join(each[:_NAMED])}{', ...' * (len(each) > _NAMED)}: {why}" for why, each in names.items())
        needs_less = all(_GIVES in why for why in names)
        advice = "; davylamp attacks lists decision-based and score-based ones" if needs_less else ""
        raise Unsupported(f"{'; '.join(lines)}{advice}")
    return cells


def _why_not(
    cell: AttackRun,
    classifier: Classifier,
    surrogate: Classifier | None,
    image: Tensor,
    classes: Callable[[Classifier], int],
) -> str:
    """Why a cell cannot be run; "" if it can, or if the model fails: then running it says how."""
    learner = surrogate or classifier
    rows = cell.search.rows(cell.row)
    try:
        detect_output_format(learner, image.to(learner.device))
        if cell.threat_model.targeted:
            why = target_rule_error(learner, cell.target)
            if why := why or why_no_class(learner, cell.target, image.to(learner.device)):
                return why
        if cell.fitted_on is not None and not has_gradients(learner, image.to(learner.device)):
            return "learns by gradients, and the model gives none"
        asked = ((row, classifier if row.learned else learner) for row in rows)
        return next(filter(None, (_why_no_row(cell, row, model, image, classes) for row, model in asked)), "")
    except ModelFailed:
        return ""


def _why_no_row(
    cell: AttackRun, row: Implementation, asked: Classifier, image: Tensor, classes: Callable[[Classifier], int]
) -> str:
    """Why a row of a cell cannot be run on the model that it asks."""
    if why := why_no_layers(row, asked):
        return why
    if not cell.search.is_portfolio:  # which goes on with its others
        rules = cell.search.first_rules(row, cell.threat_model, image[0].numel())
        parameters = resolve_step_size(cell.parameters, rules.epsilon)
        setting = RunSetting(asked.model, classes(asked), tuple(image.shape[1:]), rules, parameters)
        if why := why_not_on(row, setting):
            return why
    if cell.fitted_on is not None and not row.learned:
        return ""  # what it has learned is applied without a question
    refusals = [missing_requirement(row, asked, image.to(asked.device), aimed=cell.threat_model.targeted)]
    refusals += [precision_error(precision, asked, row, torch.device(cell.device)) for precision in precisions_of(cell)]
    return next(filter(None, refusals), "")
