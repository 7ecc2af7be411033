"""Builds a plan from a config. Each model is loaded once, to compute its digest and check its capabilities."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from torch import Tensor

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.data.duplicates import duplicate_warning, note_fewer
from ...adapters.data.lazy_data import LazyData
from ...adapters.models.classifier import check_several
from ...adapters.models.identity.digest import ModelIdentity, digest_data
from ...adapters.models.images import check_labels
from ...adapters.models.remote.server_usage import ServerUsage, note_shape, pop_usage, remote_models_in
from ...adapters.models.remote.transport import Transport, check_token
from ...adapters.models.sandbox.isolation import NOT_ISOLATED, attack_isolation_context
from ...adapters.paths import name_from_here
from ...adapters.running.readings import identify_asked
from ...adapters.running.targets import moved_target_note
from ...errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable, Unsupported
from ..attack_run import AttackRun, FitData, ModelOnData
from ..defence_pairs import undefended_models
from ..sources import DataSource, DrawnImages, FitSource, LoadedCache, LoadOptions, ModelSource
from .cells import (
    cells_of,
    check_stopping,
    note_hierarchies,
    order_runs,
    pin_metric_inputs,
    sampling_settings,
    unknown_parts,
)
from .config import Config
from .config_file import expand_models
from .models import check_surrogates, load_surrogates, runs_or_error, sources_of, supported_runs, surrogate_names
from .plan import Plan

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _attacks_apart(function: _Function) -> _Function:
    """Decorate a function of a config, so that attacks from files run with the config's isolation inside it."""

    @wraps(function)
    def call(config: Config, *arguments: Any, **named: Any) -> Any:
        with attack_isolation_context(config.isolation):
            return function(config, *arguments, **named)

    return call  # type: ignore[return-value]


@_attacks_apart
def make_plan(
    config: Config,
    *,
    models: Mapping[str, Classifier] | None = None,
    data: Data | None = None,
    surrogates: Mapping[str, Classifier] | None = None,
    fit_data: Data | None = None,
    transport: Transport | None = None,
    drawn: dict[str, DrawnImages] | None = None,
) -> Plan:
    """Load every model once, to compute its digest, and list the runs.

    Args:
        config: the configuration.
        models: classifiers by name, in place of those that the config names.
        data: images, in place of those that the config names.
        surrogates: classifiers by name, in place of loading the surrogates with those names.
        fit_data: fit images, in place of those that the config names.
        transport: HTTP settings for remote models; None to follow the config, without caching outputs.
        drawn: a dictionary to fill with the images of each model in random order, by key of the model on data. The plan
            then decodes only two of them. None to decode all images.

    A model that cannot be loaded, or does not fit these images, does not stop the others. Neither does an
    implementation without an option that the attack's other implementations have. `Plan.failed` has the reasons.

    Raises:
        DavylampError: if a name is unknown, no model or no images can be loaded, or no library supports the request.
    """
    check_config(config)
    config = _expand_names(config, models)
    subjects, cells, digests = [], [], {}
    loading, traffic = LoadOptions(transport or config.transport(), config.isolation), ServerUsage()
    bench, images = LoadedCache(), DataSource(config.data, config.limit, data, tuple(sorted(config.images)))
    unknown, notes = dict[str, Mapping[str, str]](), list[str]()
    # Omissions with their reasons; `lacking` has attacks that need more than a model returns.
    failed, refused, lacking = dict[str, str](), dict[str, str](), dict[str, str]()
    loaded_surrogates = load_surrogates(config, surrogates, loading)
    via = next(iter(loaded_surrogates.values())).via if len(loaded_surrogates) == 1 else ""
    spared = undefended_models(config.models) if config.examples == "original" else {}  # no examples are made on them
    fit = FitSource(config.fit_data, config.fit_limit, fit_data) if config.fit_data else None
    for name in config.models:
        source = ModelSource(name, None if models is None else models[name], loading)
        try:
            classifier = bench.model(source, "cpu" if models is None else str(models[name].device))
            loaded, seen, shuffled = _load_images(bench, images, classifier, config, lazily=drawn is not None)
            digest = _digest_once(digests, notes, loaded, seen, config)
            identity, spent = _identify(classifier, name, seen.inputs, loaded.labels)
            traffic += spent
            about = digest, len(loaded.labels), tuple(loaded.names) if config.images else ()
            subject = ModelOnData(name, identity.digest, config.data, *about)
            usable, useless = check_surrogates(config, loaded_surrogates, subject, classifier, seen.inputs)
            fitted_on = None if fit is None else _describe_fit_data(fit.load(classifier, seen), fit)
        except (ModelFailed, Unavailable, MissingLibrary, Unsupported, InvalidInput) as error:
            failed[f"{name}{via}"] = str(error)
            if len(failed) < len(config.models):
                continue
            if len(set(failed.values())) == 1:
                raise
            reasons = "; ".join(f"{model}: {reason}" for model, reason in failed.items())
            raise ModelFailed(f"none of {len(failed)} models can be evaluated: {reasons}") from error
        unknown |= {subject.key: {name: "; ".join(identity.reasons)}} if identity.reasons else {}
        if drawn is not None and shuffled is not None:
            drawn[subject.key] = shuffled
        subjects.append((subject, source))
        notes += [*classifier.loading_notes, *note_hierarchies(config, classifier)]
        if name in spared:
            continue
        refused |= useless
        measured = replace(config, measures=pin_metric_inputs(config, classifier))
        of_model: list[tuple[int, AttackRun]] = []
        for names, each in usable.items():
            asked = cells_of(measured, subject, seen.inputs[0].numel(), refused, {names: each}, fitted_on)
            answered = supported_runs(
                asked, classifier, each.classifier, seen.inputs[:1], loaded.labels, refused=lacking
            )
            of_model += [
                (place, replace(cell, **sampling_settings(config, classifier, each.is_random)))
                for place, cell in answered
            ]
        notes += moved_target_note((cell.target for _, cell in of_model), loaded.labels)
        cells += order_runs(config, of_model)
    unique = runs_or_error({cell.key: cell for _, cell in cells}, lacking)
    vague = {each.identities: each.unknown for each in loaded_surrogates.values()}
    unknown |= {
        key: parts for key, cell in unique.items() if (parts := {**vague[cell.surrogate], **unknown_parts(cell)})
    }
    return Plan(
        config,
        tuple(subjects),
        tuple(unique.values()),
        images,
        {**failed, **refused, **lacking},
        unknown,
        choices=_places(cells),
        surrogates=sources_of(loaded_surrogates.values()),
        fit=fit,
        traffic=traffic,
        notes=tuple(dict.fromkeys(notes)),
        loaded=bench if _stays_as_loaded(bench, subjects[-1][1], images) else LoadedCache(),
    )


def _load_images(
    bench: LoadedCache, source: DataSource, classifier: Classifier, config: Config, *, lazily: bool
) -> tuple[Data | LazyData, Data, DrawnImages | None]:
    """Return all images, those that are decoded, and the images in random order.

    If `lazily`, two images are decoded. Otherwise all are, and there is no random order.
    """
    if not lazily:
        data = bench.data(source, classifier)
        return data, data, None
    drawn = bench.drawn(source, classifier, config.seeds[0])
    return drawn.population, drawn.population.take(range(len(drawn.population.labels))[:2]), drawn


def _digest_once(
    digests: dict[int, tuple[Any, str]], notes: list[str], loaded: Data | LazyData, seen: Data, config: Config
) -> str:
    """Return the digest of images. The first time, add the warnings on them to the notes."""
    if id(loaded) not in digests:
        digests[id(loaded)] = (loaded, digest_data(seen.inputs, loaded.labels))
        limit = None if config.images else config.limit
        duplicates = duplicate_warning(seen.inputs, seen.labels) if loaded is seen else []
        notes += [*duplicates, *note_fewer(config.data, len(loaded.labels), limit)]
    return digests[id(loaded)][1]


def _expand_names(config: Config, models: Mapping[str, Classifier] | None) -> Config:
    """Expand patterns in model names, and make paths independent of the working directory.

    Names of models that the caller passed are unchanged.
    """
    config = replace(config, data=name_from_here(config.data))
    if models is not None:
        return replace(config, models=tuple(models))
    config = expand_models(config)
    return replace(config, models=tuple(dict.fromkeys(map(name_from_here, config.models))))


def _stays_as_loaded(bench: LoadedCache, source: ModelSource, images: DataSource) -> bool:
    """Whether tasks can use the loaded model and images, because these come from weight files and image files.

    Models from Python files are loaded again for the tasks, which check their digest. So are isolated and remote
    models.
    """
    made_here = source.classifier is not None or images.data is not None
    if made_here or ".py:" in source.name + images.name or source.loading.isolation != NOT_ISOLATED:
        return False
    classifier = bench.known(source, "cpu")
    return classifier is not None and not classifier.random and not remote_models_in(classifier)


def _places(cells: Sequence[tuple[int, AttackRun]]) -> dict[str, tuple[int, ...]]:
    places: dict[str, tuple[int, ...]] = {}
    for place, cell in cells:
        places[cell.key] = (*places.get(cell.key, ()), place)
    return places


def _identify(classifier: Classifier, name: str, inputs: Tensor, labels: Tensor) -> tuple[ModelIdentity, ServerUsage]:
    """Identify a model and detect its output format. Return the identity and the server queries that this took.

    Args:
        classifier: the model.
        name: its name.
        inputs: at least two images, or the only one.
        labels: labels of all images.
    """
    note_shape(classifier, inputs.shape)
    identity = identify_asked(classifier, name, inputs)
    with suppress(ModelFailed):  # the runs will report the failure
        _look(classifier, inputs[:1], labels)
    return identity, pop_usage(classifier)


def _look(classifier: Classifier, image: Tensor, labels: Tensor) -> None:
    """Query a model on one image to detect its output format, and check the labels.

    Raises:
        InvalidInput: if a label is not one of the model's classes.
    """
    classes = classifier.num_classes
    if classes is None or classifier.outputs is None:
        logits = classifier.predict_logits(image.to(classifier.device))
        check_several(logits)
        classes = logits.shape[1]
    if not classifier.answers.has_other_class:  # it stands for unknown labels
        check_labels(labels, len(labels), classes)


@_attacks_apart
def check_config(config: Config) -> None:
    """Raise an error for settings that are wrong for any model and images, before loading any.

    Raises:
        DavylampError: as for `make_plan`, for an attack, a library, a threat model or a parameter.
    """
    if config.surrogate and config.transfer != "no":
        raise InvalidInput(
            f"`surrogate` and `transfer` cannot be combined: every model already gets {config.surrogate[0]}'s examples"
        )
    if config.surrogate and config.examples != "defended":
        raise InvalidInput("`surrogate` and `examples` exclude each other: choose one")
    surrogates = (name for choice in config.attacks for name in surrogate_names(config, choice))
    check_token(config.token, (*config.models, *surrogates))
    pin_metric_inputs(config)
    placeholder = ModelOnData("", "", config.data, "", 1)
    asked = [*cells_of(config, placeholder, None, {})]
    check_stopping(config, asked)
    rows = [cell.row for _, cell in asked]
    if config.fit_data and not any(row.fit and not row.data_free for row in rows):
        names = ", ".join(dict.fromkeys(row.name for row in rows))
        raise InvalidInput(
            f"fit data were given, but none of the attacks is fitted on data ({names}); add one that is, such as uap"
        )
    if config.fit_limit is not None and not config.fit_data:
        raise InvalidInput("`fit_limit` needs `fit_data`")


def _describe_fit_data(data: Data, fit: FitSource) -> FitData:
    return FitData(fit.name, digest_data(data.inputs, data.labels), len(data.labels))
