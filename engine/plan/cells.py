"""Lists the runs of a model in an evaluation: for each attack, the implementations with their complete parameters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...adapters import Classifier, Implementation, ThreatModel
from ...adapters.catalogue.lookup import accepts_parameter, check_parameter_names
from ...adapters.catalogue.step_reach import short_steps_warning, warn_repeated_draws
from ...adapters.data.streaming import describe_files
from ...adapters.display_text import format_threat_model
from ...adapters.paths import expand_path, is_file_name
from ...adapters.running.fit import check_single_target
from ...adapters.running.judge import RULES
from ...adapters.running.targets import class_of
from ...errors import InvalidInput, Unsupported
from ..attack_run import AttackRun, FitData, ModelOnData
from ..hierarchy import check_order, read_hierarchy
from ..measure_groups import digest_of_file, is_group, pin_measure, read_group, with_setting
from ..query_estimates import estimate_queries
from ..searches.kinds import check_learns_nothing, combinations, parse_search
from ..searches.worst_case import WorstCase
from ..user_metrics import find_metric, plain_name, sealed_name
from .choices import USUAL_SIZE, rows_of, threat_model_of
from .config import AttackChoice, Config
from .models import NO_SURROGATE, LoadedSurrogate, surrogate_names

# Fields in which the attacks of one worst case may differ.
_APART: Mapping[str, Any] = {"attack": "", "parameters": {}, "grid": {}, "version": "", "implementation": None}


def cells_of(
    config: Config,
    subject: ModelOnData,
    components: int | None,
    refused: dict[str, str],
    surrogates: Mapping[tuple[str, ...], LoadedSurrogate] | None = None,
    fitted_on: FitData | None = None,
) -> Iterator[tuple[int, AttackRun]]:
    """Yield the runs of a model, each with the index of its attack in `config.attacks`.

    Args:
        config: the settings of the evaluation.
        subject: the model and its images.
        components: number of components of an image, C x H x W. None if unknown.
        refused: a dictionary to which implementations without a requested option are added, with the reason, if other
            implementations of the attack have the option.
        surrogates: loaded surrogates, by the names of their members. Attacks with other surrogates are omitted. None
            keeps all attacks, without their surrogates.
        fitted_on: images on which fitted attacks are fitted. None for the evaluation images.
    """
    from .presets import preset_radius  # builds every preset

    for place, choice in enumerate(config.attacks):
        surrogate = NO_SURROGATE if surrogates is None else surrogates.get(surrogate_names(config, choice))
        if surrogate is None:
            continue
        asked = choice
        if choice.epsilon is None and choice.norm is not None:
            asked = replace(choice, epsilon=preset_radius(config.preset, choice.norm, components or USUAL_SIZE))
        rows = rows_of(choice, config.libraries, fixed=config.fixed)
        threat_model = threat_model_of(asked, rows, components)
        if components is not None:
            threat_model.check_radius(components)
        fitting = [row for row in rows if threat_model.norm in row.classes]
        refusals: dict[str, str] = {}
        for row in fitting:
            try:
                cell = _cell(config, choice, subject, row, threat_model, fitting, components or USUAL_SIZE)
                free = FitData("", f"{components} components", 0) if row.data_free else None
                seen = FitData(subject.data, subject.data_digest, subject.images) if row.learned else None
                learned: dict[str, Any] = {"fitted_on": free or fitted_on or seen} if row.fit else {}
                if learned.get("fitted_on"):
                    check_single_target(row, threat_model, class_of(choice.target))
                learned["surrogate"] = surrogate.identities
                yield from ((place, replace(cell, seed=seed, **learned)) for seed in config.seeds)
            except Unsupported as error:
                refusals[row.name] = str(error)
                if len(refusals) == len(fitting):
                    raise
        refused.update(refusals)


def _cell(
    config: Config,
    choice: AttackChoice,
    subject: ModelOnData,
    row: Implementation,
    threat_model: ThreatModel,
    rows: list[Implementation],
    components: int,
) -> AttackRun:
    search = parse_search(choice.attack).around(row)
    if search.why_no_surrogate and surrogate_names(config, choice):
        raise InvalidInput(
            f"expected a fixed radius with a surrogate, got {choice.attack}: {search.why_no_surrogate}; run the attack "
            "at several radii (several values of `epsilon`)"
        )
    if choice.grid and not search.finds_smallest:
        raise InvalidInput(
            f"`grid` can only be used with a search such as best({choice.attack}), but the attack is {choice.attack}"
        )
    given, grid = _limited(config, choice)
    check_parameter_names((*given, *grid), row.attack, rows, row.more)
    shared = search.complete_parameters(row, given, threat_model.epsilon, defaults=choice.defaults)
    parameters, grid = (
        {name: value for name, value in each.items() if accepts_parameter(row, name)} for each in (shared, grid)
    )
    search.check(row, threat_model, components, parameters, grid)
    if search.runs_once:
        check_learns_nothing(row, apart=bool(config.fit_data))
    return AttackRun(
        subject=subject,
        attack=search.name,
        threat_model=threat_model,
        parameters=parameters,
        grid=grid,
        target=choice.target,
        pixels=config.eight_bit,
        measures=sealed_measures(config),
        shard_size=config.shard_size,
        version=search.version(row),
        implementation=row if row.given is not None else None,
        **environment_key(config.device),
    )


def _limited(config: Config, choice: AttackChoice) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
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


def environment_key(device: str) -> dict[str, Any]:
    """Return the fields of an `AttackRun` that depend on the environment.

    These are the version of the rules by which examples are judged, the version of torch, and the type of the device.
    """
    return {"rules": RULES, "torch": ".".join(torch.__version__.split(".")[:2]), "device": device.partition(":")[0]}


def sampling_settings(config: Config, classifier: Classifier, surrogate: bool | None) -> dict[str, int]:
    """Return the fields of an `AttackRun` with numbers of samples, for randomised models and surrogates.

    Args:
        config: the settings of the evaluation.
        classifier: the evaluated model.
        surrogate: whether the surrogate is randomised. None if the run has no surrogate.

    Returns:
        "draws" if the evaluated model is randomised, and "eot" if the attacked model is randomised.
    """
    is_drawn = classifier.random if surrogate is None else surrogate
    drawn = {"draws": config.judge_samples} if classifier.random else {}
    return {**drawn, "eot": config.eot} if is_drawn else drawn


def unknown_parts(cell: AttackRun) -> dict[str, str]:
    """Return the reason why a user's attack or metric of a run cannot be identified completely, by its name."""
    metrics = [
        find_metric(name) for name in map(plain_name, cell.measures) if is_file_name(name) and not is_group(name)
    ]
    reasons = {metric.name: metric.unknown for metric in metrics}
    for row in (each.row for each in cell.members):
        if row.given is not None:
            reasons[row.name] = row.given.identity.reasons
    return {name: "; ".join(why) for name, why in reasons.items() if why}


def order_runs(config: Config, cells: Iterable[tuple[int, AttackRun]]) -> list[tuple[int, AttackRun]]:
    """Sort the runs of a model as `config.order` says, and join runs if `config.stop_when_fooled` is set.

    Args:
        config: the settings of the evaluation.
        cells: the runs, each with the index of its attack in `config.attacks`.

    Returns:
        The runs, each with its index. If `stop_when_fooled` is set, runs with the same threat model, target, seed and
        surrogate are joined into one worst-case run. The joined run is returned once for each index.
    """
    ordered = list(cells)
    if config.order == "cheap-first":
        ordered.sort(key=lambda each: estimate_queries(each[1]))  # stable: equal ones stay as they were given
    if not config.stop_when_fooled:
        return ordered
    return [(place, whole) for group in _grouped(ordered, config) for whole in [_join(group)] for place, _ in group]


def check_stopping(config: Config, cells: Iterable[tuple[int, AttackRun]]) -> None:
    """Check that runs can be joined into worst-case runs, if `config.stop_when_fooled` is set.

    Raises:
        InvalidInput: if an attack is a minimum-norm attack, if an attack occurs twice under one threat model, or if all
            threat models are different.
        Unsupported: if an attack is fitted on all images, or has no name.
    """
    if not config.stop_when_fooled:
        return
    groups = _grouped(cells, config)
    for group in groups:
        for _, cell in group:
            WorstCase.check_member(cell.search, cell.row, cell.threat_model)
        names = [cell.attack for _, cell in group]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise InvalidInput(
                f"expected each attack once under {format_threat_model(group[0][1].threat_model)} with "
                f"`stop_when_fooled`, got {twice} twice"
            )
    if all(len(group) < 2 for group in groups):
        under = "; ".join(
            f"{cell.attack} under {format_threat_model(cell.threat_model)}" for ((_, cell), *_) in groups[:4]
        )
        raise InvalidInput(
            f"`stop_when_fooled` needs several attacks with the same threat model, got {under}; give `norm` and "
            "`epsilon`, or add attacks"
        )


def _grouped(cells: Iterable[tuple[int, AttackRun]], config: Config) -> list[list[tuple[int, AttackRun]]]:
    """Group runs that differ only in their attack and its parameters. The order of the runs is kept."""
    groups: dict[Any, list[tuple[int, AttackRun]]] = {}
    for place, cell in cells:
        blank = replace(cell, **_APART)
        groups.setdefault((blank.key, config.attacks[place].surrogate), []).append((place, cell))
    return list(groups.values())


def _join(group: Sequence[tuple[int, AttackRun]]) -> AttackRun:
    cells = [cell for _, cell in group]
    if len(cells) == 1:
        return cells[0]
    search = WorstCase(",".join(cell.attack for cell in cells))
    return replace(
        cells[0],
        attack=search.name,
        parameters={cell.attack: dict(cell.parameters) for cell in cells},
        version=search.version(cells[0].row, [cell.version for cell in cells]),
        implementation=None,
    )


def short_steps_warnings(cells: Iterable[AttackRun]) -> list[str]:
    """Return a warning for each run whose steps together are shorter than the radius."""
    lines = (
        short_steps_warning(cell.row, cell.threat_model, {**cell.parameters, **values})
        for cell in _members(cells)
        for values in combinations(cell.grid)
    )
    return list(dict.fromkeys(line for line in lines if line))


def list_repeated_draws(cells: Iterable[AttackRun]) -> list[str]:
    """Return a warning for each run in which randomised outputs are averaged twice: by `eot` and by the attack."""
    lines = (
        warn_repeated_draws(cell.row, cell.threat_model.norm, cell.parameters, cell.eot) for cell in _members(cells)
    )
    return list(dict.fromkeys(line for line in lines if line))


def _members(cells: Iterable[AttackRun]) -> Iterator[AttackRun]:
    return (member for cell in cells for member in cell.members)


def sealed_measures(config: Config) -> tuple[str, ...]:
    """Return the measures of a config. The digest of the code is appended to the name of a user's metric."""
    return tuple(name if is_group(name) or not is_file_name(name) else sealed_name(name) for name in config.measures)


def pin_metric_inputs(config: Config, classifier: Classifier | None = None) -> tuple[str, ...]:
    """Return the measures of a config, with digests of the data and files that the measures read.

    The measure "coverage" reads profile data, which define the range of each neuron. The measure "confusion" reads a
    file with a class hierarchy.

    Args:
        config: the settings of the evaluation.
        classifier: the model for which the profile data are prepared. None omits the digest of the profile data.

    Raises:
        InvalidInput: if "coverage" has no profile data, if profile data are given without "coverage", or if a hierarchy
            has a different number of classes than the model.
        DavylampError: if the data or the file cannot be read.
    """
    sealed = []
    groups = {measure: read_group(measure) for measure in config.measures if is_group(measure)}
    if config.neuron_profile and "coverage" not in {group.name for group in groups.values()}:
        raise InvalidInput("`neuron_profile` needs `measures=coverage`")
    for measure in config.measures:
        group = groups.get(measure)
        if group is not None and group.name == "coverage":
            sealed.append(_seal_profile(measure, group["profile"], config.neuron_profile, classifier))
        elif group is not None and group.name == "confusion" and (group["hierarchy"] or config.hierarchy):
            path = group["hierarchy"] or config.hierarchy
            classes, wanted = len(read_hierarchy(expand_path(path))), classifier and classifier.num_classes
            if wanted and classes != wanted:
                raise InvalidInput(f"expected {wanted} classes in the hierarchy {path}, got {classes}")
            whole = measure if group["hierarchy"] else with_setting(measure, "hierarchy", path)
            sealed.append(pin_measure(whole, digest_of_file(path)))
        else:
            sealed.append(measure)
    return tuple(sealed)


def note_hierarchies(config: Config, classifier: Classifier) -> list[str]:
    """Return notes on hierarchies of the config whose order of classes cannot be compared with the model's order.

    Raises:
        DavylampError: if the order of the classes in a hierarchy differs from the order in the model.
    """
    groups = [read_group(measure) for measure in config.measures if is_group(measure)]
    paths = [group["hierarchy"] or config.hierarchy for group in groups if group.name == "confusion"]
    return [note for path in paths if path and (note := check_order(path, classifier.class_names))]


def _seal_profile(measure: str, inside: str, beside: str, classifier: Classifier | None) -> str:
    """Return a coverage measure with the name and the digest of its profile data."""
    if not (inside or beside):
        raise InvalidInput(
            "coverage needs `neuron_profile=DATA`: data on which the usual range of each neuron is measured"
        )
    whole = measure if inside else with_setting(measure, "profile", beside)
    return whole if classifier is None else pin_measure(whole, describe_files(classifier, inside or beside, None)[0])
