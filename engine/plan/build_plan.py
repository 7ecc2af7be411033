"""From a config to a plan: every model loaded once to hash it, and asked for what its cells need."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.data.duplicates import duplicate_warning, note_fewer
from ...adapters.models.classifier import check_several
from ...adapters.models.identity.digest import ModelIdentity, digest_data
from ...adapters.models.images import check_labels
from ...adapters.models.remote.server_usage import ServerUsage, note_shape, pop_usage, remote_models_in
from ...adapters.models.remote.transport import Transport, check_token
from ...adapters.models.sandbox.attack_isolation import attack_isolation_context
from ...adapters.models.sandbox.isolation import NOT_ISOLATED
from ...adapters.paths import name_from_here
from ...adapters.running.readings import identify_asked
from ...adapters.running.targets import moved_target_note
from ...errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable, Unsupported
from ..attack_run import AttackRun, FitData, ModelOnData
from ..defence_pairs import undefended_models
from ..sources import DataSource, FitSource, LoadedCache, LoadOptions, ModelSource
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
    """The function of a config, with its attacks of files where the config says that they run."""

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
) -> Plan:
    """Load every model once, to hash it, and list the cells.

    Args:
        config: what to do.
        models: classifiers by name, in place of those that the config names.
        data: images, in place of those that the config names.
        surrogates: classifiers by name, in place of loading the surrogates of those names.
        fit_data: images to fit on, in place of those that the config names.
        transport: how servers of remote models are asked; None: as the config says, and no answer is kept.

    A model that cannot be loaded, or not with these images, costs itself only, as does an implementation that cannot do
    what others of its attack can: `Plan.failed` has their reasons.

    Raises:
        DavylampError: if a name is unknown, no model or no images can be loaded, or no library can do what is asked.
    """
    check_config(config)
    config = _expand_names(config, models)
    loading, traffic = LoadOptions(transport or config.transport(), config.isolation), ServerUsage()
    bench, images = LoadedCache(), DataSource(config.data, config.limit, data, tuple(sorted(config.images)))
    subjects, cells, digests = [], [], {}
    unknown: dict[str, Mapping[str, str]] = {}
    # What cannot take part, with why; `lacking` asks a model for what it does not give.
    failed, refused, lacking = dict[str, str](), dict[str, str](), dict[str, str]()
    notes: list[str] = []
    loaded_surrogates = load_surrogates(config, surrogates, loading)
    via = next(iter(loaded_surrogates.values())).via if len(loaded_surrogates) == 1 else ""
    spared = undefended_models(config.models) if config.examples == "original" else {}  # nothing is made on them
    fit = FitSource(config.fit_data, config.fit_limit, fit_data) if config.fit_data else None
    for name in config.models:
        source = ModelSource(name, None if models is None else models[name], loading)
        try:
            classifier = bench.model(source, "cpu" if models is None else str(models[name].device))
            loaded = bench.data(images, classifier)
            if id(loaded) not in digests:
                digests[id(loaded)] = (loaded, digest_data(loaded.inputs, loaded.labels))
                notes += [
                    *duplicate_warning(*loaded[:2]),
                    *note_fewer(config.data, len(loaded.labels), None if config.images else config.limit),
                ]
            identity, spent = _identify(classifier, name, loaded)
            traffic += spent
            about = digests[id(loaded)][1], len(loaded.labels), tuple(loaded.names) if config.images else ()
            subject = ModelOnData(name, identity.digest, config.data, *about)
            usable, useless = check_surrogates(config, loaded_surrogates, subject, classifier, loaded)
            fitted_on = None if fit is None else _describe_fit_data(fit.load(classifier, loaded), fit)
        except (ModelFailed, Unavailable, MissingLibrary, Unsupported, InvalidInput) as error:
            failed[f"{name}{via}"] = str(error)
            if len(failed) < len(config.models):
                continue
            if len(set(failed.values())) == 1:
                raise
            reasons = "; ".join(f"{model}: {reason}" for model, reason in failed.items())
            raise ModelFailed(f"none of {len(failed)} models can be evaluated: {reasons}") from error
        unknown |= {subject.key: {name: "; ".join(identity.reasons)}} if identity.reasons else {}
        subjects.append((subject, source))
        notes += [*classifier.loading_notes, *note_hierarchies(config, classifier)]
        if name in spared:
            continue
        refused |= useless
        measured = replace(config, measures=pin_metric_inputs(config, classifier))
        of_model: list[tuple[int, AttackRun]] = []
        for names, each in usable.items():
            asked = cells_of(measured, subject, loaded.inputs[0].numel(), refused, {names: each}, fitted_on)
            answered = supported_runs(asked, classifier, each.classifier, loaded, refused=lacking)
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


def _expand_names(config: Config, models: Mapping[str, Classifier] | None) -> Config:
    """The config with every model by name, and one name for one path; models that are handed over have theirs."""
    config = replace(config, data=name_from_here(config.data))
    if models is not None:
        return replace(config, models=tuple(models))
    config = expand_models(config)
    return replace(config, models=tuple(dict.fromkeys(map(name_from_here, config.models))))


def _stays_as_loaded(bench: LoadedCache, source: ModelSource, images: DataSource) -> bool:
    """Whether the last model and its images are what loading them again would give: of weights and files of images.

    What a file of code makes is made again for the tasks, which see whether it is the same, and so is a model in a
    process of its own or on a server.
    """
    made_here = source.classifier is not None or images.data is not None
    if made_here or ".py:" in source.name + images.name or source.loading.isolation != NOT_ISOLATED:
        return False
    classifier = bench.known(source, "cpu")
    return classifier is not None and not classifier.random and not remote_models_in(classifier)


def _places(cells: Sequence[tuple[int, AttackRun]]) -> dict[str, tuple[int, ...]]:
    """The places in the config of the attacks of each cell, by its key."""
    places: dict[str, tuple[int, ...]] = {}
    for place, cell in cells:
        places[cell.key] = (*places.get(cell.key, ()), place)
    return places


def _identify(classifier: Classifier, name: str, data: Data) -> tuple[ModelIdentity, ServerUsage]:
    """What a model is, and what its server was asked to know that, and what it gives."""
    note_shape(classifier, data.inputs.shape)
    identity = identify_asked(classifier, name, data.inputs)
    with suppress(ModelFailed):  # the cells will say how
        _look(classifier, data)
    return identity, pop_usage(classifier)


def _look(classifier: Classifier, data: Data) -> None:
    """Ask about one image what nobody said of a model's answers; InvalidInput for labels that are none of its classes.

    Args:
        classifier: the model.
        data: its images.
    """
    classes = classifier.num_classes
    if classes is None or classifier.outputs is None:
        logits = classifier.predict_logits(data.inputs[:1].to(classifier.device))
        check_several(logits)
        classes = logits.shape[1]
    if not classifier.answers.has_other_class:  # which stands for labels that nobody knew of
        check_labels(data.labels, len(data.labels), classes)


@_attacks_apart
def check_config(config: Config) -> None:
    """Refuse what no model and no images could make right, before any of them is loaded.

    Raises:
        DavylampError: as `make_plan`, for an attack, a library, a threat model or a parameter.
    """
    if config.surrogate and config.transfer != "no":
        raise InvalidInput(
            f"expected a surrogate or transfer, got both: examples of {config.surrogate[0]} are judged on every model"
        )
    if config.surrogate and config.examples != "own":
        raise InvalidInput("expected a surrogate or the examples of the original, got both")
    surrogates = (name for choice in config.attacks for name in surrogate_names(config, choice))
    check_token(config.token, (*config.models, *surrogates))
    pin_metric_inputs(config)
    nobody = ModelOnData("", "", config.data, "", 1)
    asked = [*cells_of(config, nobody, None, {})]
    check_stopping(config, asked)
    rows = [cell.row for _, cell in asked]
    if config.fit_data and not any(row.fit and not row.data_free for row in rows):
        names = ", ".join(dict.fromkeys(row.name for row in rows))
        raise InvalidInput(f"expected an attack that learns from images once (uap) with data to fit on, got {names}")
    if config.fit_limit is not None and not config.fit_data:
        raise InvalidInput("expected data to fit on with a limit of it, got the limit alone")


def _describe_fit_data(data: Data, fit: FitSource) -> FitData:
    return FitData(fit.name, digest_data(data.inputs, data.labels), len(data.labels))
