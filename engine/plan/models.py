"""Loads the surrogates of a plan, and finds the runs that a model supports."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...adapters import Classifier, Implementation
from ...adapters.attack import RunSetting
from ...adapters.catalogue.lookup import why_not_on
from ...adapters.catalogue.step_size import resolve_step_size
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

_NAMED = 3  # attacks named in an error
_GIVES = "the model returns"  # in reasons that do not apply to other kinds of attacks


class LoadedSurrogate(NamedTuple):
    """A loaded surrogate, which consists of one or several models (members). `NO_SURROGATE` has no members.

    Args:
        sources: how to load each member.
        identities: name and digest of each member.
        classifier: the classifier on which examples are made: the only member, or the mean of the logits of all
            members. None for `NO_SURROGATE`.
        unknown: reason why a member cannot be identified completely, by name of the member.
    """

    sources: tuple[ModelSource, ...] = ()
    identities: tuple[Surrogate, ...] = ()
    classifier: Classifier | None = None
    unknown: Mapping[str, str] = {}

    @property
    def via(self) -> str:
        """Suffix " via SURROGATE" for titles of runs; "" for `NO_SURROGATE`."""
        return f" via {ensemble_name([each.model for each in self.identities])}" if self.identities else ""

    @property
    def is_random(self) -> bool | None:
        """Whether the surrogate is randomised; None for `NO_SURROGATE`."""
        return None if self.classifier is None else self.classifier.random

    def check(self, subject: ModelOnData, classifier: Classifier, inputs: Tensor) -> None:
        """Raise InvalidInput if the surrogate is the attacked model itself, or incompatible with it."""
        if self.classifier is None:
            return
        same = [each.model for each in self.identities if each.model_digest == subject.model_digest]
        if same:
            raise InvalidInput(
                f"expected a surrogate that differs from the attacked model, got {same[0]} as both models; for a "
                "white-box attack, omit `surrogate`"
            )
        check_surrogate(classifier, self.classifier, inputs[:1].to(classifier.device))


NO_SURROGATE = LoadedSurrogate()


def surrogate_names(config: Config, choice: AttackChoice) -> tuple[str, ...]:
    """Return the names of the models on which the examples of an attack choice are made.

    `config.surrogate` replaces the surrogates of an attack choice. If some attack choices have surrogates,
    `config.surrogate` applies only to these, and the other attacks are made on the evaluated model.

    Returns:
        Names of the surrogates; empty if the examples are made on the evaluated model.
    """
    if any(each.surrogate for each in config.attacks) and not choice.surrogate:
        return ()
    return tuple(dict.fromkeys(config.surrogate or choice.surrogate))


def load_surrogates(
    config: Config, models: Mapping[str, Classifier] | None = None, loading: LoadOptions = LOADED_HERE
) -> dict[tuple[str, ...], LoadedSurrogate]:
    """Load all surrogates of a config.

    Args:
        config: the settings of the evaluation.
        models: classifiers by name. Surrogates that are not in this mapping are loaded by name.
        loading: options for loading surrogates by name.

    Returns:
        Each surrogate, by the names of its members. The key () has the value `NO_SURROGATE`, for attacks whose examples
        are made on the evaluated model.

    Raises:
        DavylampError: if a surrogate cannot be loaded.
    """
    return {names: _load(names, models or {}, loading) for names in _sets_of(config)}


def check_surrogates(
    config: Config,
    surrogates: Mapping[tuple[str, ...], LoadedSurrogate],
    subject: ModelOnData,
    classifier: Classifier,
    inputs: Tensor,
) -> tuple[dict[tuple[str, ...], LoadedSurrogate], dict[str, str]]:
    """Find the surrogates that fit an evaluated model.

    Returns:
        The surrogates that fit, by the names of their members. Then the reason for each surrogate that does not fit, by
        its attacks.

    Raises:
        InvalidInput: if the only surrogate does not fit.
    """
    usable, refused = {}, {}
    for names, surrogate in surrogates.items():
        try:
            surrogate.check(subject, classifier, inputs)
        except InvalidInput as error:
            if len(surrogates) == 1:
                raise
            attacks = dict.fromkeys(each.attack for each in config.attacks if surrogate_names(config, each) == names)
            refused[f"{', '.join(attacks)}{surrogate.via} on {subject.model}"] = str(error)
        else:
            usable[names] = surrogate
    return usable, refused


def sources_of(surrogates: Iterable[LoadedSurrogate]) -> dict[tuple[Surrogate, ...], tuple[ModelSource, ...]]:
    """Return how to load the members of each surrogate, by the identities of the members."""
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
    image: Tensor,
    labels: Tensor,
    *,
    refused: dict[str, str],
) -> list[tuple[int, AttackRun]]:
    """Return the runs that an evaluated model supports. The model is queried on one image.

    Args:
        cells: runs of one model, each with its index in the config.
        classifier: the model.
        surrogate: model on which the examples are made; None for the model itself.
        image: an image to query, shape (1, C, H, W).
        labels: labels of all images, shape (N,).
        refused: receives the reasons for the other runs, by attack and model.
    """
    if surrogate is not None:
        surrogate.answers.expect_labels(labels)
    kept: list[tuple[int, AttackRun]] = []
    known: dict[tuple[object, ...], str] = {}
    classes = cache(lambda asked: asked.num_classes or asked.predict_logits(image.to(asked.device)).shape[1])
    for place, cell in cells:
        asked = cell.attack, cell.threat_model, cell.target, precisions_of(cell), str(cell.parameters)
        if asked not in known:
            known[asked] = _why_not(cell, classifier, surrogate, image, classes)
        if known[asked]:
            refused[f"{cell.title} on {cell.subject.model}"] = known[asked]
        else:
            kept.append((place, cell))
    return kept


def runs_or_error(cells: dict[str, AttackRun], refused: dict[str, str]) -> dict[str, AttackRun]:
    """Return the supported runs unchanged. If there are no supported runs, raise Unsupported with the reasons."""
    if refused and not cells:
        names: dict[str, list[str]] = {}
        for name, why in refused.items():
            names.setdefault(why, []).append(name)
        lines = (f"{', '.join(each[:_NAMED])}{', ...' * (len(each) > _NAMED)}: {why}" for why, each in names.items())
        needs_less = all(_GIVES in why for why in names)
        advice = "; `davylamp attacks` lists the decision-based and score-based attacks" if needs_less else ""
        raise Unsupported(f"{'; '.join(lines)}{advice}")
    return cells


def _why_not(
    cell: AttackRun,
    classifier: Classifier,
    surrogate: Classifier | None,
    image: Tensor,
    classes: Callable[[Classifier], int],
) -> str:
    """Return the reason why a run is not supported; "" if the run is supported or the model fails.

    A failure of the model is not reported here, because the run itself reports the failure later.
    """
    learner = surrogate or classifier
    rows = cell.search.rows(cell.row)
    try:
        detect_output_format(learner, image.to(learner.device))
        if cell.threat_model.targeted:
            why = target_rule_error(learner, cell.target)
            if why := why or why_no_class(learner, cell.target, image.to(learner.device)):
                return why
        if cell.fitted_on is not None and not has_gradients(learner, image.to(learner.device)):
            return "is fitted with gradients, but the model returns none"
        asked = ((row, classifier if row.learned else learner) for row in rows)
        return next(filter(None, (_why_no_row(cell, row, model, image, classes) for row, model in asked)), "")
    except ModelFailed:
        return ""


def _why_no_row(
    cell: AttackRun, row: Implementation, asked: Classifier, image: Tensor, classes: Callable[[Classifier], int]
) -> str:
    if why := why_no_layers(row, asked):
        return why
    if not cell.search.is_portfolio:  # a portfolio continues with its other attacks
        rules = cell.search.first_rules(row, cell.threat_model, image[0].numel())
        parameters = resolve_step_size(cell.parameters, rules.epsilon)
        setting = RunSetting(asked.model, classes(asked), tuple(image.shape[1:]), rules, parameters)
        if why := why_not_on(row, setting):
            return why
    if cell.fitted_on is not None and not row.learned:
        return ""  # fitted arrays are applied without queries
    refusals = [missing_requirement(row, asked, image.to(asked.device), aimed=cell.threat_model.targeted)]
    refusals += [precision_error(precision, asked, row, torch.device(cell.device)) for precision in precisions_of(cell)]
    return next(filter(None, refusals), "")
