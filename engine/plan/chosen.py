"""What the program chose where the user left it open: for one line on the terminal, and for the records."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...adapters import ATTACKS, ThreatModel
from ...adapters.words import radius_text
from ...errors import Unsupported
from ..cell import Cell
from ..searches.kinds import parse_search
from .config import AttackChoice, Config

_SETTINGS = {"models": "model", "data": "data", "limit": "images", "seeds": "seed", "device": "device"}


def chosen_of(
    choice: AttackChoice, attack: str, threat_model: ThreatModel, *, only_targeted: bool = False
) -> dict[str, Any]:
    """What a choice left open and what was taken: `norm`, `epsilon`, `parameters`, `target`, as far as they apply.

    Args:
        choice: what the user said.
        attack: the canonical attack.
        threat_model: what was made of it.
        only_targeted: the row has no untargeted mode: it aims at a class although none was asked for.
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


def chosen_of_cell(config: Config, cell: Cell) -> dict[str, Any]:
    """What the program chose of a cell of this config; of a worst case by the names of its attacks."""
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


def chosen_line(config: Config, cells: Sequence[Cell], given: Collection[str]) -> str:
    """Everything that was chosen for an evaluation, in one line; "" if that is nothing.

    Args:
        config: what is run.
        cells: what it comes to.
        given: names of the settings of the config that the user gave.
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
    """The settings that the user did not give, a text each: "data demo:imagenet", "seed 0"."""
    texts = []
    for name, word in _SETTINGS.items():
        value = getattr(config, name)
        if name not in given and value is not None:
            texts.append(f"{word} {', '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return texts


def chosen_text(chosen: Mapping[str, Any]) -> str:
    """What `chosen_of` gives, as a text: "norm linf, epsilon 4/255 (customary), steps 40 (matched)"."""
    texts = [f"norm {chosen['norm']}"] if "norm" in chosen else []
    if "epsilon" in chosen:
        norm = chosen.get("norm", "linf" if chosen["epsilon"] < 1 else "")
        texts.append(f"epsilon {radius_text(norm, chosen['epsilon'])} ({chosen.get('preset', 'customary')})")
    if parameters := chosen.get("parameters"):
        texts.append(f"{', '.join(f'{name} {_value(value)}' for name, value in parameters.items())} (matched)")
    if "target" in chosen:
        texts.append(f"target {chosen['target']}")
    return ", ".join(texts)


def join_chosen(parts: Sequence[str]) -> str:
    """The parts as the line that a command prints; "" without any."""
    return f"chosen: {'; '.join(parts)}" if parts else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _chosen_as(cell: Cell) -> tuple[str, str]:
    """The names that a cell's attack may be chosen by: of the attack and of the row; a user's has one alone."""
    row = cell.row
    return (row.name, row.name) if row.is_users else (row.attack, row.name)


def _may_come_from(choice: AttackChoice, cell: Cell) -> bool:
    """Whether a cell may come from a choice."""
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
