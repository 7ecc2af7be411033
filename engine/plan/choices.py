"""Completes the user's choice of an attack (implementations, norm, radius, parameters), and describes the defaults."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...adapters import ATTACKS, Implementation, ThreatModel, find_implementation, implementations_of
from ...adapters.catalogue.default_threat_model import choose_threat_model
from ...adapters.catalogue.lookup import accepts_parameter, find_library
from ...adapters.display_text import format_radius
from ...errors import InvalidInput, Unsupported
from ..attack_run import AttackRun
from ..searches.kinds import Search, parse_search
from .config import AttackChoice, Config

USUAL_SIZE = 3 * 224 * 224  # components of an image if unknown, for the customary radius


_SETTINGS = {"models": "model", "data": "data", "limit": "images", "seeds": "seed", "device": "device"}


def rows_of(choice: AttackChoice, libraries: Sequence[str] = (), *, fixed: bool = False) -> list[Implementation]:
    """Return the implementations that run for an attack choice.

    Raises:
        UnknownName: if the attack, the implementation or a library does not exist.
        InvalidInput: if the name of the attack has a wrong form, or if none of the libraries implements the attack.
    """
    for library in libraries:
        find_library(library)
    search = parse_search(choice.attack)
    name = search.inside
    if search.is_portfolio:
        return [_portfolio_of(choice, search, libraries)]
    if search.kind == "worst-case":
        raise InvalidInput(
            f"the worst case {choice.attack} cannot be given as an attack; list its attacks separately and set "
            "`stop_when_fooled`"
        )
    if set(name) & set("()"):
        wanted = "NAME, LIBRARY:NAME, best(LIBRARY:NAME) or at-saturation(LIBRARY:NAME)"
        raise InvalidInput(f"expected an attack as {wanted}, got {choice.attack!r}")
    rows = [choice.row] if choice.row else [find_implementation(name)] if ":" in name else implementations_of(name)
    chosen = [row for row in rows if not libraries or row.library in libraries or row.given is not None]
    if not chosen:
        raise no_library(name, rows, libraries)
    if ":" not in name:
        chosen = [row for row in chosen if fixed or not row.variant]
    if choice.norm is None:
        return chosen
    return [row for row in chosen if choice.norm in row.classes] or chosen


def no_library(name: str, rows: Iterable[Implementation], libraries: Iterable[str]) -> InvalidInput:
    """Build the error for an attack that none of the requested libraries implements."""
    have = ", ".join(dict.fromkeys(row.library for row in rows))
    return InvalidInput(f"expected a library that implements {name} ({have}), got {', '.join(libraries)}")


def _portfolio_of(choice: AttackChoice, search: Search, libraries: Sequence[str]) -> Implementation:
    search = search.choose_members(choice.norm or "linf", targeted=bool(choice.target))
    row = search.find_row()
    wanted = {each.library for each in search.rows(row)}
    if libraries and not wanted <= set(libraries):
        have = ", ".join(sorted(wanted))
        raise InvalidInput(
            f"expected `libraries` to be empty or to contain {have}, which {choice.attack} needs, got "
            f"{', '.join(libraries)}"
        )
    return row


def threat_model_of(choice: AttackChoice, rows: Sequence[Implementation], components: int | None = None) -> ThreatModel:
    """Return the threat model of an attack choice. A missing norm or radius gets the default value.

    Args:
        choice: the attack choice.
        rows: implementations of the attack, from `rows_of`.
        components: number of components of an image, C x H x W, which determines the default radius. None if unknown;
            `USUAL_SIZE` is then used.

    Raises:
        InvalidInput: if a radius is given and the norm is not clear, or if the radius does not fit the norm.
        Unsupported: if no implementation supports the norm.
    """
    threat_model = choose_threat_model(
        rows[0].attack,
        rows,
        components or USUAL_SIZE,
        norm=choice.norm,
        epsilon=choice.epsilon,
        targeted=bool(choice.target),
    )
    if parse_search(choice.attack).searches_radius and choice.epsilon is None:
        return replace(threat_model, epsilon=None)  # the search chooses its largest radius
    return threat_model


def check_one_norm(choices: Iterable[AttackChoice], libraries: Sequence[str] = (), *, fixed: bool = False) -> None:
    """Check that attacks with a radius but without a norm have the same default norm."""
    norms: dict[str, tuple[str, float]] = {}
    for choice in choices:
        if choice.norm is None and choice.epsilon is not None:
            norm = threat_model_of(choice, rows_of(choice, libraries, fixed=fixed)).norm
            norms.setdefault(norm, (choice.attack, choice.epsilon))
    if len(norms) > 1:
        meant = " and ".join(f"{norm} for {attack}" for norm, (attack, _) in norms.items())
        radius = format_radius("linf", next(iter(norms.values()))[1])
        raise InvalidInput(
            f"`epsilon` {radius} needs `norm`, because the attacks have different default norms ({meant}); give `norm` "
            "or run the attacks separately"
        )


def spread_parameters(
    attacks: Sequence[Any], parameters: Mapping[str, Any], libraries: Sequence[str] = (), *, fixed: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Distribute parameters over several attacks. Each attack gets the parameters that it has.

    Returns:
        The parameters of each attack. Then a note for each parameter that some of the attacks do not have.

    Raises:
        Unsupported: if none of the attacks has a parameter.
    """
    choices = [AttackChoice(attack) for attack in attacks]
    rows, attacks = [rows_of(each, libraries, fixed=fixed) for each in choices], [each.attack for each in choices]
    per_attack = [
        {name: v for name, v in parameters.items() if any(accepts_parameter(r, name) for r in each)} for each in rows
    ]
    notes = []
    for name in parameters:
        without = [attack for attack, values in zip(attacks, per_attack, strict=True) if name not in values]
        if len(without) == len(attacks):
            raise Unsupported(f"the parameter {name} does not exist for {' or '.join(attacks)}")
        if without:
            notes.append(f"the parameter {name} does not exist for {', '.join(without)} and is ignored there")
    return per_attack, notes


def chosen_of(
    choice: AttackChoice, attack: str, threat_model: ThreatModel, *, only_targeted: bool = False
) -> dict[str, Any]:
    """Return the settings of an attack that the user did not give and davylamp chose.

    Args:
        choice: the user's attack choice.
        attack: canonical name of the attack.
        threat_model: the completed threat model.
        only_targeted: whether the implementation has no untargeted mode. davylamp then chose a target.

    Returns:
        The chosen settings, with the keys "norm", "epsilon", "parameters" and "target". Settings that the user gave are
        missing.
    """
    chosen: dict[str, Any] = {}
    if choice.norm is None:
        chosen["norm"] = threat_model.norm
    if choice.epsilon is None and threat_model.epsilon is not None:
        chosen["epsilon"] = threat_model.epsilon
    matched = {} if choice.defaults or attack not in ATTACKS else ATTACKS[attack].matched
    parameters = {name: value for name, value in matched.items() if name not in {*choice.parameters, *choice.grid}}
    if parameters:
        chosen["parameters"] = parameters
    if only_targeted and not choice.target:
        chosen["target"] = "second-likely"
    return chosen


def chosen_of_cell(config: Config, cell: AttackRun) -> dict[str, Any]:
    """Return the settings of a run that the user did not give and davylamp chose, as `chosen_of`.

    For a worst-case run, the result has such settings for each attack, by name of the attack. If a preset chose the
    radius, the key "preset" has the name of the preset.
    """
    from .presets import preset_radius  # builds every preset

    if cell.search.kind == "worst-case":
        each = {member.attack: chosen_of_cell(config, member) for member in cell.members}
        return {name: chosen for name, chosen in each.items() if chosen}

    choice = next((choice for choice in config.attacks if _may_come_from(choice, cell)), None)
    if choice is None:
        return {}
    threat = cell.threat_model
    chosen = chosen_of(choice, _chosen_as(cell)[0], threat, only_targeted=cell.row.targeted == "only")
    if "epsilon" in chosen and threat.epsilon in (
        preset_radius(config.preset, threat.norm, size) for size in (1, 1 << 40)
    ):
        chosen["preset"] = config.preset
    return chosen


def format_defaults_taken(config: Config, cells: Sequence[AttackRun], given: Collection[str]) -> str:
    """Describe the settings of an evaluation that the user did not give and davylamp chose.

    Args:
        config: the settings of the evaluation.
        cells: runs of the evaluation.
        given: names of the fields of `config` that the user gave.

    Returns:
        One line of text; "" if the user gave all settings.
    """
    groups: dict[str, list[str]] = {}
    members = [member for cell in cells for member in cell.members]
    for choice in config.attacks:
        cell = next((cell for cell in members if _may_come_from(choice, cell)), None)
        if cell is not None and (text := chosen_text(chosen_of_cell(config, cell))):
            groups.setdefault(text, []).append(choice.attack)
    parts = [f"{', '.join(dict.fromkeys(attacks))}: {text}" for text, attacks in groups.items()]
    return join_chosen([*parts, *settings_texts(config, given)])


def settings_texts(config: Config, given: Collection[str]) -> list[str]:
    """Return the default values of models, data, limit, seeds and device, each as a text such as "seed 0".

    Settings whose names are in `given` are omitted.
    """
    texts = []
    for name, word in _SETTINGS.items():
        value = getattr(config, name)
        if name not in given and value is not None:
            texts.append(f"{word} {', '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return texts


def chosen_text(chosen: Mapping[str, Any]) -> str:
    """Format the result of `chosen_of`, such as "norm linf, epsilon 4/255 (customary), steps 40 (matched)"."""
    texts = [f"norm {chosen['norm']}"] if "norm" in chosen else []
    if "epsilon" in chosen:
        norm = chosen.get("norm", "linf" if chosen["epsilon"] < 1 else "")
        texts.append(f"epsilon {format_radius(norm, chosen['epsilon'])} ({chosen.get('preset', 'customary')})")
    if parameters := chosen.get("parameters"):
        texts.append(f"{', '.join(f'{name} {_value(value)}' for name, value in parameters.items())} (matched)")
    if "target" in chosen:
        texts.append(f"target {chosen['target']}")
    return ", ".join(texts)


def assumed_texts(rows: Iterable[Implementation]) -> list[str]:
    """Return messages about the assumptions that davylamp made about attacks of the user, one for each attack."""
    assumed = dict.fromkeys((row.name, row.assumed) for row in rows if row.assumed)
    return [f"{name}: assumed {' and '.join(each)}" for name, each in assumed]


def join_chosen(parts: Sequence[str]) -> str:
    """Join descriptions of chosen settings into the line that a command prints; "" if there are no descriptions."""
    return f"chosen: {'; '.join(parts)}" if parts else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _chosen_as(cell: AttackRun) -> tuple[str, str]:
    """Return the names of a run's attack and of its implementation. For a user's attack, both are equal."""
    row = cell.row
    return (row.name, row.name) if row.is_user_attack else (row.attack, row.name)


def _may_come_from(choice: AttackChoice, cell: AttackRun) -> bool:
    search, threat = parse_search(choice.attack), cell.threat_model
    try:
        search = search.choose_members(threat.norm, targeted=threat.targeted)
    except Unsupported:
        return False
    return (
        search.kind == cell.search.kind
        and ",".join(search.members) in _chosen_as(cell)
        and (bool(cell.surrogate) or not choice.surrogate)
        and choice.norm in (None, threat.norm)
        and (choice.epsilon is None or choice.epsilon == threat.epsilon)
        and choice.target == cell.target
        and all(
            cell.parameters.get(key, value) == value for key, value in choice.parameters.items() if key != "step_size"
        )
    )
