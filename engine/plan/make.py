"""From a config to cells: models loaded and hashed, attacks spread over the libraries, parameters resolved."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

import torch

from ...adapters import Classifier, Implementation, ThreatModel
from ...adapters.catalogue.lookup import accepts, check_parameter_names
from ...adapters.data.datasets import Data
from ...adapters.data.repeated import note_fewer, note_repeated
from ...adapters.models.classifier import check_several
from ...adapters.models.identity.digest import ModelIdentity, digest_data
from ...adapters.models.images import check_labels
from ...adapters.models.remote.traffic import Traffic, note_shape, remote_parts, take_traffic
from ...adapters.models.remote.transport import Transport, check_token
from ...adapters.models.room.apart import attacks_apart
from ...adapters.models.room.isolating import NOT_ISOLATED
from ...adapters.paths import name_from_here
from ...adapters.running.fit import check_one_target
from ...adapters.running.judge import RULES
from ...adapters.running.readings import identify_asked
from ...adapters.running.targets import class_of, note_moved
from ...adapters.user_file import is_file_name
from ...errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable, Unsupported
from ..cell import Cell, FitData, ModelOnData, Surrogate
from ..defended import originals_of
from ..measure_groups import is_group
from ..searches.kinds import check_learns_nothing, parse_search
from ..sources import DataSource, FitSource, LastLoaded, Loading, ModelSource
from ..user_metrics import find_metric, plain_name, sealed_name
from .answerable import answerable, left_of
from .cells import arrange, check_stopping
from .choices import USUAL_SIZE, rows_of, threat_model_of
from .config import AttackChoice, Config, expand_models
from .parts import Part
from .sealing import note_hierarchies, seal_groups
from .surrogates import (
    NO_SURROGATE,
    LoadedSurrogate,
    check_surrogates,
    load_surrogates,
    sources_of,
    surrogate_names,
)


@dataclass(frozen=True)
class Plan:
    """What an evaluation consists of.

    Args:
        config: with every pattern expanded.
        subjects: each model on its images, with where it comes from.
        cells: in the order in which they are run: model by model.
        data: where the images come from.
        failed: models and implementations that cannot take part, each with the reason.
        unknown: by key of a subject or a cell, what in it (model, attack, metric) cannot be known in full, with why:
            its records hold for this plan alone.
        name: of this plan, by which it knows such records that it has made itself.
        choices: by key of a cell, the places in `config.attacks` of those that it runs.
        surrogates: where what examples are made on comes from, by what it is; () is each model itself.
        fit: where the images come from that attacks learn from which learn once; None: from those that are scored.
        notes: what was decided while the models were loaded.
        traffic: what servers were asked to know what their models are.
        part: what of it is run here, see `parts.take_part`; None: all.
        parts: by key of a cell the part of each of its shards.
        loaded: the last model and its images, where a run in this process can begin with them.
    """

    config: Config
    subjects: tuple[tuple[ModelOnData, ModelSource], ...]
    cells: tuple[Cell, ...]
    data: DataSource
    failed: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    surrogates: Mapping[tuple[Surrogate, ...], tuple[ModelSource, ...]] = field(default_factory=dict)
    fit: FitSource | None = None
    traffic: Traffic = field(default_factory=Traffic)
    notes: tuple[str, ...] = ()
    part: Part | None = None
    parts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    loaded: LastLoaded = field(default_factory=LastLoaded, compare=False, repr=False)

    def source(self, subject: ModelOnData) -> ModelSource:
        """Where the model of a subject comes from."""
        return next(source for known, source in self.subjects if known == subject)

    def surrogate(self, cell: Cell) -> tuple[ModelSource, ...]:
        """Where what a cell's examples are made on comes from; empty: they are made on its model."""
        return self.surrogates.get(cell.surrogate, ())

    @property
    def transfers(self) -> list[tuple[ModelOnData, Cell]]:
        """The models that each cell's examples are tried on: others that see the same images."""
        first, rule, originals = self.config.models[0], self.config.transfer, self.originals
        return [
            (subject, cell)
            for subject, _ in self.subjects
            for cell in self.cells
            if cell.subject.data_digest == subject.data_digest and cell.subject != subject
            if (rule == "full" and not cell.surrogate)
            or (rule == "simple" and first in (subject.model, cell.subject.model) and not cell.surrogate)
            or originals.get(subject.model) == cell.subject.model
        ]

    @property
    def transfers_here(self) -> list[tuple[ModelOnData, Cell]]:
        """Those of cells of which any shard is run here: whichever part finds such a cell whole does them."""
        return [(subject, cell) for subject, cell in self.transfers if self.shards(cell)]

    @property
    def originals(self) -> dict[str, str]:
        """The undefended model of each that sees its examples; empty: each sees its own only."""
        return {} if self.config.examples == "own" else originals_of(self.config.models)

    def shards(self, cell: Cell) -> list[int]:
        """The shards of a cell that are run here: all, or those of the part."""
        numbers = range(cell.shards)
        return [*numbers] if self.part is None else [n for n in numbers if self.parts[cell.key][n] == self.part.number]

    @property
    def cells_here(self) -> tuple[Cell, ...]:
        """The cells of which any shard is run here."""
        return self.cells if self.part is None else tuple(cell for cell in self.cells if self.shards(cell))

    @property
    def subjects_here(self) -> tuple[tuple[ModelOnData, ModelSource], ...]:
        """The subjects of these cells; those that nothing is made on go round the parts."""
        if self.part is None:
            return self.subjects
        attacked, needed = ({cell.subject for cell in cells} for cells in (self.cells, self.cells_here))
        others = [subject for subject, _ in self.subjects if subject not in attacked]
        needed |= {*others[self.part.number - 1 :: self.part.of]}
        return tuple(pair for pair in self.subjects if pair[0] in needed)

    @property
    def images(self) -> int:
        """Images that go through a task here, counted once for each: the unit of progress."""
        tasks = [subject for subject, _ in self.subjects_here]
        tasks += [subject for subject, _ in self.transfers_here]
        spans = (len(cell.span(shard)) for cell in self.cells_here for shard in self.shards(cell))
        return sum(subject.images for subject in tasks) + sum(spans)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _attacks_apart(function: _Function) -> _Function:
    """The function of a config, with its attacks of files where the config says that they run."""

    @wraps(function)
    def call(config: Config, *arguments: Any, **named: Any) -> Any:
        with attacks_apart(config.isolation):
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
    loading, traffic = Loading(transport or config.transport(), config.isolation), Traffic()
    bench, images = LastLoaded(), DataSource(config.data, config.limit, data, tuple(sorted(config.images)))
    subjects, cells, digests = [], [], {}
    unknown: dict[str, Mapping[str, str]] = {}
    # What cannot take part, with why; `lacking` asks a model for what it does not give.
    failed, refused, lacking = dict[str, str](), dict[str, str](), dict[str, str]()
    notes: list[str] = []
    loaded_surrogates = load_surrogates(config, surrogates, loading)
    via = next(iter(loaded_surrogates.values())).via if len(loaded_surrogates) == 1 else ""
    spared = originals_of(config.models) if config.examples == "original" else {}  # nothing is made on them
    fit = FitSource(config.fit_data, config.fit_limit, fit_data) if config.fit_data else None
    for name in config.models:
        source = ModelSource(name, None if models is None else models[name], loading)
        try:
            classifier = bench.model(source, "cpu" if models is None else str(models[name].device))
            loaded = bench.data(images, classifier)
            if id(loaded) not in digests:
                digests[id(loaded)] = (loaded, digest_data(loaded.inputs, loaded.labels))
                notes += [
                    *note_repeated(*loaded[:2]),
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
        measured = replace(config, measures=seal_groups(config, classifier))
        of_model: list[tuple[int, Cell]] = []
        for names, each in usable.items():
            asked = _cells(measured, subject, loaded.inputs[0].numel(), refused, {names: each}, fitted_on)
            answered = answerable(asked, classifier, each.classifier, loaded, refused=lacking)
            of_model += [
                (place, replace(cell, **drawn_of(config, classifier, each.is_random))) for place, cell in answered
            ]
        notes += note_moved((cell.target for _, cell in of_model), loaded.labels)
        cells += arrange(config, of_model)
    unique = left_of({cell.key: cell for _, cell in cells}, lacking)
    vague = {each.identities: each.unknown for each in loaded_surrogates.values()}
    unknown |= {
        key: parts for key, cell in unique.items() if (parts := {**vague[cell.surrogate], **_unknown_parts(cell)})
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
        loaded=bench if _stays_as_loaded(bench, subjects[-1][1], images) else LastLoaded(),
    )


def _expand_names(config: Config, models: Mapping[str, Classifier] | None) -> Config:
    """The config with every model by name, and one name for one path; models that are handed over have theirs."""
    config = replace(config, data=name_from_here(config.data))
    if models is not None:
        return replace(config, models=tuple(models))
    config = expand_models(config)
    return replace(config, models=tuple(dict.fromkeys(map(name_from_here, config.models))))


def _stays_as_loaded(bench: LastLoaded, source: ModelSource, images: DataSource) -> bool:
    """Whether the last model and its images are what loading them again would give: of weights and files of images.

    What a file of code makes is made again for the tasks, which see whether it is the same, and so is a model in a
    process of its own or on a server.
    """
    made_here = source.classifier is not None or images.data is not None
    if made_here or ".py:" in source.name + images.name or source.loading.isolation != NOT_ISOLATED:
        return False
    classifier = bench.known(source, "cpu")
    return classifier is not None and not classifier.random and not remote_parts(classifier)


def _places(cells: Sequence[tuple[int, Cell]]) -> dict[str, tuple[int, ...]]:
    """The places in the config of the attacks of each cell, by its key."""
    places: dict[str, tuple[int, ...]] = {}
    for place, cell in cells:
        places[cell.key] = (*places.get(cell.key, ()), place)
    return places


def _identify(classifier: Classifier, name: str, data: Data) -> tuple[ModelIdentity, Traffic]:
    """What a model is, and what its server was asked to know that, and what it gives."""
    note_shape(classifier, data.inputs.shape)
    identity = identify_asked(classifier, name, data.inputs)
    with suppress(ModelFailed):  # the cells will say how
        _look(classifier, data)
    return identity, take_traffic(classifier)


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
    if not classifier.answers.has_spare:  # which stands for labels that nobody knew of
        check_labels(data.labels, len(data.labels), classes)


def drawn_of(config: Config, classifier: Classifier, surrogate: bool | None) -> dict[str, int]:
    """What a cell says of draws: of the model that is judged, and of the one that is attacked (a random surrogate?)."""
    is_drawn = classifier.random if surrogate is None else surrogate
    drawn = {"draws": config.draws} if classifier.random else {}
    return {**drawn, "eot": config.eot} if is_drawn else drawn


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
    seal_groups(config)
    nobody = ModelOnData("", "", config.data, "", 1)
    asked = [*_cells(config, nobody, None, {})]
    check_stopping(config, asked)
    rows = [cell.row for _, cell in asked]
    if config.fit_data and not any(row.fit and not row.data_free for row in rows):
        names = ", ".join(dict.fromkeys(row.name for row in rows))
        raise InvalidInput(f"expected an attack that learns from images once (uap) with data to fit on, got {names}")
    if config.fit_limit is not None and not config.fit_data:
        raise InvalidInput("expected data to fit on with a limit of it, got the limit alone")


def _describe_fit_data(data: Data, fit: FitSource) -> FitData:
    return FitData(fit.name, digest_data(data.inputs, data.labels), len(data.labels))


def _cells(
    config: Config,
    subject: ModelOnData,
    components: int | None,
    refused: dict[str, str],
    surrogates: Mapping[tuple[str, ...], LoadedSurrogate] | None = None,
    fitted_on: FitData | None = None,
) -> Iterator[tuple[int, Cell]]:
    """The cells of a model, each with the place of its attack in the config.

    Rows that cannot do what others of their attack can go into `refused`; attacks whose surrogate is not among
    `surrogates` (None: any) are left out. Without `components` (no image is known yet)
    no radius is refused for its size.
    """
    from .presets import preset_radius  # builds every preset

    for place, choice in enumerate(config.attacks):
        surrogate = NO_SURROGATE if surrogates is None else surrogates.get(surrogate_names(config, choice))
        if surrogate is None:
            continue
        asked = choice
        if choice.epsilon is None and choice.norm is not None:
            asked = replace(choice, epsilon=preset_radius(config.preset, choice.norm, components or USUAL_SIZE))
        rows = rows_of(choice, config.libraries, repaired=config.repaired)
        threat_model = threat_model_of(asked, rows, components)
        if components is not None:
            threat_model.check_radius(components)
        fitting = [row for row in rows if threat_model.norm in row.classes]
        refusals: dict[str, str] = {}
        for row in fitting:
            try:
                cells = [*_cells_of_row(config, choice, subject, row, threat_model, fitting, components)]
                free = FitData("", f"{components} components", 0) if row.data_free else None
                seen = FitData(subject.data, subject.data_digest, subject.images) if row.learned else None
                learned = {"fitted_on": free or fitted_on or seen} if row.fit else {}
                if learned.get("fitted_on"):
                    check_one_target(row, threat_model, class_of(choice.target))
                yield from ((place, replace(cell, surrogate=surrogate.identities, **learned)) for cell in cells)
            except Unsupported as error:
                refusals[row.name] = str(error)
                if len(refusals) == len(fitting):
                    raise
        refused.update(refusals)


def _cells_of_row(
    config: Config,
    choice: AttackChoice,
    subject: ModelOnData,
    row: Implementation,
    threat_model: ThreatModel,
    fitting: list[Implementation],
    components: int | None,
) -> Iterator[Cell]:
    for seed in config.seeds:
        yield _cell(config, choice, subject, row, threat_model, seed, fitting, components or USUAL_SIZE)


def _cell(  # noqa: PLR0913, PLR0917 - what a cell is made of
    config: Config,
    choice: AttackChoice,
    subject: ModelOnData,
    row: Implementation,
    threat_model: ThreatModel,
    seed: int,
    rows: list[Implementation],
    components: int,
) -> Cell:
    search = parse_search(choice.attack).around(row)
    if search.why_no_surrogate and surrogate_names(config, choice):
        raise InvalidInput(
            f"expected a fixed radius with a surrogate, got {choice.attack}: {search.why_no_surrogate}; run the attack "
            "at several radii (--epsilon, repeated)"
        )
    if choice.grid and not search.finds_smallest:
        raise InvalidInput(f"expected a grid with best({choice.attack}) only, got one with {choice.attack}")
    given, grid = _limited(config, choice)
    check_parameter_names((*given, *grid), row.attack, rows, row.more)
    shared = search.complete_parameters(row, given, threat_model.epsilon, defaults=choice.defaults)
    parameters, grid = ({name: value for name, value in each.items() if accepts(row, name)} for each in (shared, grid))
    search.check(row, threat_model, components, parameters, grid)
    if search.runs_once:
        check_learns_nothing(row, apart=bool(config.fit_data))
    return Cell(
        subject=subject,
        attack=search.name,
        threat_model=threat_model,
        parameters=parameters,
        grid=grid,
        target=choice.target,
        seed=seed,
        pixels=config.pixels,
        measures=tuple(
            name if is_group(name) or not is_file_name(name) else sealed_name(name) for name in config.measures
        ),
        shard_size=config.shard_size,
        version=search.version(row),
        implementation=row if row.given is not None else None,
        **conditions(config.device),
    )


def _limited(config: Config, choice: AttackChoice) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """The parameters and the grid of a choice, with batch size, precision and budget of queries that hold for all."""
    parameters, grid = dict(choice.parameters), dict(choice.grid)
    if config.batch_size is not None:
        parameters.setdefault("batch_size", config.batch_size)
    if config.precision is not None:
        parameters.setdefault("precision", config.precision)
    if config.max_queries is not None:
        parameters["max_queries"] = min(config.max_queries, parameters.get("max_queries", config.max_queries))
        if "max_queries" in grid:
            grid["max_queries"] = tuple(min(config.max_queries, limit) for limit in grid["max_queries"])
    return parameters, grid


def conditions(device: str) -> dict[str, Any]:
    """What else is part of a cell: the judge's rules, the version of torch, and the class of the device."""
    return {"rules": RULES, "torch": ".".join(torch.__version__.split(".")[:2]), "device": device.partition(":")[0]}


def _unknown_parts(cell: Cell) -> dict[str, str]:
    """A user's attack and metrics in a cell that cannot be known in full, by name, each with why."""
    metrics = [
        find_metric(name) for name in map(plain_name, cell.measures) if is_file_name(name) and not is_group(name)
    ]
    reasons = {metric.name: metric.unknown for metric in metrics}
    for row in (each.row for each in cell.members):
        if row.given is not None:
            reasons[row.name] = row.given.identity.reasons
    return {name: "; ".join(why) for name, why in reasons.items() if why}
