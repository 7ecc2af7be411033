"""Commands for attacks: list the catalogue, and compare libraries."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..engine.plan.config import AttackChoice
from ..errors import UnknownName, Unsupported
from .config_options import FromConfig, Given
from .input_options import InputOptions
from .loading import LOADING, loading_settings, set_attack_isolation, tell
from .options import (
    Data,
    Json,
    Latex,
    LatexWords,
    Libraries,
    Model,
    all_failed,
    choose_rows,
    given_options,
    latex_style,
    one_format,
    read_parameters,
    say_assumed,
    split_list,
)
from .progress import show_progress
from .table_options import TableOptions


def list_attacks(
    *,
    attack: Annotated[str | None, typer.Argument(help="show this attack, with its parameters")] = None,
    library: Libraries = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List the attacks and their libraries, or show one attack's parameters, defaults and known issues by library."""
    from ..report.text.catalogue import SHORT, catalogue_json, print_attacks, print_catalogue

    view.check("json" if as_json else "")
    libraries = split_list("--library", library)
    if attack is None and not as_json and not view.wide and {*view.chosen} <= {*SHORT}:
        with view.open() as console:
            print_attacks(_list_attacks(libraries), console)
        _say_refused()
        return
    from ..adapters.catalogue.known_issues import FINDINGS
    from ..adapters.catalogue.lookup import describe_implementation
    from ..adapters.parameters import PARAMETERS

    chosen = choose_rows(attack, libraries, repaired=True)
    rows = [describe_implementation(row) for row in chosen]
    if as_json:
        print(catalogue_json(rows))  # noqa: T201 - standard output is the product
    else:
        known = {**PARAMETERS, **{name: parameter for row in chosen for name, parameter in row.more.items()}}
        meanings = {name: parameter.meaning for name, parameter in known.items()}
        with view.open() as console:
            print_catalogue(rows, FINDINGS, meanings, console)
    _say_refused()


def _list_attacks(libraries: list[str] | None) -> list[dict[str, Any]]:
    """Return a record for each attack, without importing its libraries or torch."""
    from ..adapters.catalogue.assemble import catalogue

    known_libraries = catalogue().libraries
    for name in libraries or []:
        if name not in known_libraries:
            raise UnknownName("library", name, known_libraries)
    listed: dict[str, dict[str, Any]] = {}
    for row in catalogue().implementations.values():
        if libraries and row.library not in libraries:
            continue
        attack = catalogue().attacks[row.attack]
        known = {"attack": row.attack, "title": attack.title, "knowledge": attack.knowledge, "kind": attack.kind}
        record = listed.setdefault(row.attack, {**known, "norms": [], "libraries": []})
        record["norms"] += [norm for norm in row.classes if norm not in record["norms"]]
        record["libraries"] += [row.library] if row.library not in record["libraries"] else []
    return list(listed.values())


def _say_refused() -> None:
    from ..adapters.catalogue.assemble import catalogue
    from ..report.text.console import print_error

    for name, reason in catalogue().refused.items():
        print_error(f"the library {name} is omitted: {reason}")


@dataclass(frozen=True)
class ParameterOptions:
    """Options for frequent parameters of an attack."""

    steps: Annotated[int | None, typer.Option(rich_help_panel="Attacks", help="number of iterations")] = None
    step_size: Annotated[str | None, typer.Option(rich_help_panel="Attacks", help="length of a step: 1/255")] = None
    random_start: Annotated[
        bool | None, typer.Option(rich_help_panel="Attacks", help="start at a random point within the radius")
    ] = None
    restarts: Annotated[int | None, typer.Option(rich_help_panel="Attacks", help="number of independent runs")] = None
    confidence: Annotated[
        float | None, typer.Option(rich_help_panel="Attacks", help="logit margin that an example must reach")
    ] = None


def compare_libraries(
    *,
    context: typer.Context,
    attack: Annotated[str, typer.Argument(help="an attack from `davylamp attacks`, FILE.py:ATTACK, or best(pgd)")],
    model: Model = "demo:efficientnet-lite0",
    seen: InputOptions,
    data: Data = "demo:imagenet",
    on: Annotated[Given, FromConfig(("limit",))],
    threat: Annotated[Given, FromConfig(("norm", "epsilon", "target", "parameters"), AttackChoice)],
    words: ParameterOptions,
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", help="also compare this: FILE.py:ATTACK, best(foolbox:pgd) (repeatable)"),
    ] = None,
    among: Annotated[Given, FromConfig(("libraries", "repaired", "max_queries"))],
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    batch: Annotated[Given, FromConfig(("batch_size", "precision", "draws", "eot"))],
    how: Annotated[Given, LOADING],
    defaults: Annotated[bool, typer.Option("--defaults", help="use each library's default parameters")] = False,
    view: TableOptions,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Run one attack through every library that implements it, with matched parameters, and compare each pair."""
    form = one_format({"csv": as_csv, "latex": as_latex, "json": as_json})
    style = latex_style(latex_words)
    view.check(form)
    set_attack_isolation(how)
    beside = split_list("--with", beside) or []
    parameters = read_parameters(vars(words), threat.pop("parameters", []), [attack, *beside])
    choice = {"norm": None, **threat, "attack": attack, "defaults": defaults, "parameters": parameters}
    rows = _rows_to_compare(choice, beside, among.get("libraries"), repaired=among.get("repaired", False))
    say_assumed(rows)
    values = {**on, **among, **batch, **loading_settings(how)}
    config = _check_request(
        choice, values, {"models": (seen.of(model),), "data": data, "seeds": (seed,), "device": device}, rows
    )
    classifier, comparison, chosen = _run_comparison(config, rows)
    _say_chosen(comparison, chosen, config, given_options(context))
    _print_in(form, comparison, config, chosen, style, view)
    _say_hints(classifier, comparison, config)
    if all_failed([row.error for row in comparison.rows if row.error], len(comparison.rows), "implementations"):
        raise typer.Exit(1)


def _rows_to_compare(
    choice: dict[str, Any], beside: list[str], libraries: list[str] | None, *, repaired: bool
) -> list[Any]:
    """Return the implementations of an attack or a search in these libraries, and additional ones from any library."""
    from ..engine.comparison.searches import is_search, search_rows
    from ..engine.plan.choices import threat_model_of
    from ..engine.plan.config_file import parse_attack_choice

    def rows_of(name: str, norm: str | None, libraries: list[str] | None) -> list[Any]:
        if is_search(name):
            return search_rows(name, norm, libraries or (), repaired=repaired)
        return choose_rows(name, libraries, repaired=repaired)

    rows = rows_of(choice["attack"], choice["norm"], libraries)
    if not beside:
        return rows
    norm = threat_model_of(parse_attack_choice(choice), rows).norm  # determines the attacks of best(auto)
    for name in beside:
        others = rows_of(name, norm, None)
        if not any(norm in row.classes for row in others):
            have = ", ".join(sorted({each for row in others for each in row.classes}))
            raise Unsupported(
                f"--with {name} does not support norm {norm}, only {have}; choose a norm that both support: --norm"
            )
        rows += others
    return rows


def _run_comparison(config: Any, rows: list[Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Load model and images, run the comparison, and return model, comparison and the defaults taken."""
    from ..adapters.data.datasets import load_data_for
    from ..adapters.data.duplicates import note_fewer
    from ..adapters.models.zoo.load import load_model
    from ..api.verbs import warnings_before
    from ..engine import compare
    from ..engine.comparison.compare import matched_parameters
    from ..engine.comparison.searches import attack_inside, passes_of_row
    from ..engine.plan.choices import chosen_of, threat_model_of

    asked = config.attacks[0]
    how = {"transport": config.transport(), "isolation": config.isolation}
    classifier = load_model(config.models[0], config.device, **how)
    images = load_data_for(classifier, config.data, config.limit)
    for line in note_fewer(config.data, len(images.labels), config.limit):
        tell(line)
    threat_model = threat_model_of(asked, rows, images.inputs[0].numel())
    given = asked.parameters if asked.defaults else matched_parameters(asked.attack, threat_model, asked.parameters)
    for line in warnings_before(rows, threat_model, given, config.eot, classifier):
        tell(line)
    limits = {"max_queries": config.max_queries, "batch_size": config.batch_size, "precision": config.precision}
    passes = {row.name: passes_of_row(row, asked.parameters, threat_model.norm) for row in rows}
    work = {name: (len(images.labels), each) for name, each in passes.items()}
    with show_progress(len(rows) * len(images.labels), work) as progress:
        comparison = compare(
            asked.attack,
            classifier,
            images.inputs,
            images.labels,
            threat_model,
            parameters={**asked.parameters, **{name: value for name, value in limits.items() if value is not None}},
            rows=rows,
            defaults=asked.defaults,
            target=asked.target or "second-likely",
            seed=config.seeds[0],
            draws=config.draws,
            eot=config.eot,
            progress=progress,
        )
    only = all(row.targeted == "only" for row in rows)
    return classifier, comparison, chosen_of(asked, attack_inside(asked.attack), threat_model, only_targeted=only)


def _print_in(form: str, comparison: Any, config: Any, chosen: dict[str, Any], style: Any, view: TableOptions) -> None:
    """Print a comparison in the requested format."""
    from ..report.text.comparison import comparison_csv, comparison_json

    asked, model = config.attacks[0], config.models[0]
    if form == "json":
        print(comparison_json(comparison, model, config.data, chosen))  # noqa: T201
    elif form == "latex":
        from ..report.text.latex_comparison import comparison_latex

        print(comparison_latex(comparison, model, config.data, style), end="")  # noqa: T201
    elif form == "csv":
        print(comparison_csv(comparison), end="")  # noqa: T201
    else:
        title = f"{asked.attack} on {model}, {config.data}"
        with view.open() as console:
            _print_comparison(comparison, title, console, defaults=asked.defaults)


def _say_hints(classifier: Any, comparison: Any, config: Any) -> None:
    """Print notes on the model: how its outputs were interpreted, its gradients and samples, and server queries."""
    from ..adapters.models.remote.server_usage import total_usage
    from ..adapters.models.sandbox.isolated import describe_isolated
    from ..adapters.result import UNSTEADY
    from ..adapters.running.targets import moved_target_note
    from ..api.verbs import hints_after

    result = next((row.result for row in comparison.rows if row.result is not None), None)
    notes = [note for note in comparison.notes if note != UNSTEADY]
    apart = describe_isolated(config.isolation, config.models)
    moved = [] if result is None else moved_target_note([choice.target for choice in config.attacks], result.labels)
    hints = hints_after(classifier, result, draws=config.draws, eot=config.eot)
    for line in filter(None, (*notes, *apart, *moved, *hints, total_usage(classifier).line)):
        tell(line)


def _check_request(choice: dict[str, Any], values: Given, settings: dict[str, Any], rows: list[Any]) -> Any:
    """Return a validated config of the comparison. Everything that needs no model is checked here."""
    from ..adapters.catalogue.lookup import accepts_parameter, require_library
    from ..engine.comparison.searches import check_searches
    from ..engine.plan.choices import spread_parameters, threat_model_of
    from ..engine.plan.config import Config
    from ..engine.plan.config_file import parse_attack_choice

    asked = parse_attack_choice(choice)
    config = Config(**settings, **values, attacks=(asked,))
    for name in config.libraries:
        require_library(name)
    threat_model = threat_model_of(asked, rows)
    check_searches(rows, threat_model, asked.parameters, defaults=asked.defaults)
    if not all(any(accepts_parameter(row, name) for row in rows) for name in asked.parameters):
        spread_parameters([asked.attack], asked.parameters, config.libraries, repaired=True)
    return config


def _say_chosen(comparison: Any, chosen: dict[str, Any], config: Any, given: set[str]) -> None:
    """Print to standard error, before any number, whether the model is unsteady, and the defaults taken."""
    from ..adapters.result import UNSTEADY
    from ..engine.plan.choices import chosen_text, join_chosen, settings_texts
    from ..report.text.console import print_error

    if UNSTEADY in comparison.notes:
        print_error(UNSTEADY)
    names = {"models": "model", "seeds": "seed"}
    parts = [text for text in (chosen_text(chosen),) if text]
    settled = {name for name in ("models", "data", "limit", "seeds", "device") if names.get(name, name) in given}
    if line := join_chosen([*parts, *settings_texts(config, settled)]):
        print_error(line)


def _print_comparison(comparison: Any, title: str, console: Any, *, defaults: bool = False) -> None:
    from ..adapters.catalogue.known_issues import FINDINGS
    from ..adapters.catalogue.lookup import library_defaults
    from ..engine.comparison.searches import SearchImplementation
    from ..report.text.comparison import print_comparison

    norm = comparison.threat_model.norm
    rows = [row.implementation for row in comparison.rows if not isinstance(row.implementation, SearchImplementation)]
    known = {row.name: library_defaults(row, norm) for row in rows} if defaults else None
    print_comparison(comparison, title, FINDINGS, console, defaults=known)
