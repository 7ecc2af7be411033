"""Models of a plan: loads surrogates to compute their digests, and omits runs that a model does not support."""

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
    """A loaded surrogate, of one or several models (its members).

    Args:
        sources: sources of the members; empty if examples are made on the attacked model itself.
        identities: name and digest of each member.
        classifier: the member, or the mean of the members' logits.
        unknown: reason why a member cannot be identified completely, by its name.
    """

    sources: tuple[ModelSource, ...] = ()
    identities: tuple[Surrogate, ...] = ()
    classifier: Classifier | None = None
    unknown: Mapping[str, str] = {}

    @property
    def via(self) -> str:
        """Suffix of titles, " via SURROGATE"; "" without a surrogate."""
        return f" via {ensemble_name([each.model for each in self.identities])}" if self.identities else ""

    @property
    def is_random(self) -> bool | None:
        """Whether the surrogate is random; None without a surrogate."""
        return None if self.classifier is None else self.classifier.random

    def check(self, subject: ModelOnData, classifier: Classifier, inputs: Tensor) -> None:
        """Raise InvalidInput if the surrogate is the attacked model itself, or incompatible with it."""
        if self.classifier is None:
            return
        same = [each.model for each in self.identities if each.model_digest == subject.model_digest]
        if same:
            raise InvalidInput(
                f"expected a surrogate that differs from the model, got {same[0]} for both, which would be a "
                "white-box attack; for a white-box attack, give no surrogate"
            )
        check_surrogate(classifier, self.classifier, inputs[:1].to(classifier.device))


NO_SURROGATE = LoadedSurrogate()


def surrogate_names(config: Config, choice: AttackChoice) -> tuple[str, ...]:
    """Return the names of the models on which a choice's examples are made; empty for the evaluated model itself.

    The config's surrogates replace those of the choice. If some choices name surrogates, the config's surrogates apply
    to these choices only, and the other choices stay white-box.
    """
    if any(each.surrogate for each in config.attacks) and not choice.surrogate:
        return ()
    return tuple(dict.fromkeys(config.surrogate or choice.surrogate))


def load_surrogates(
    config: Config, models: Mapping[str, Classifier] | None = None, loading: LoadOptions = LOADED_HERE
) -> dict[tuple[str, ...], LoadedSurrogate]:
    """Load the surrogates of a config. The keys are tuples of names; () stands for the evaluated model itself.

    Args:
        config: the configuration.
        models: classifiers by name, in place of loading those names.
        loading: options for loading the other surrogates by name.

    Raises:
        DavylampError: if one cannot be loaded.
    """
    return {names: _load(names, models or {}, loading) for names in _sets_of(config)}


def check_surrogates(
    config: Config,
    surrogates: Mapping[tuple[str, ...], LoadedSurrogate],
    subject: ModelOnData,
    classifier: Classifier,
    inputs: Tensor,
) -> tuple[dict[tuple[str, ...], LoadedSurrogate], dict[str, str]]:
    """Return the surrogates that fit a model, and the reason for each attack whose surrogate does not fit.

    Raises:
        InvalidInput: if none fits.
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
    """Return the sources of each surrogate's members, by the members' identities."""
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
    """Return the runs that the model supports.

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
    """Return the runs by key. Raises Unsupported if the models support none."""
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
    """Return why a run is impossible; "" if it is possible.

    If the model fails, "" is returned as well, because running the attack reports the failure.
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
    """Return why an implementation cannot run on the model that it queries; "" if it can."""
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
