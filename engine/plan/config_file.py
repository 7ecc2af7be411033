"""Reads the settings of an evaluation from TOML files, and writes them as TOML."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ...adapters.attack import Parameter
from ...adapters.catalogue.lookup import find_implementation, resolve_implementation
from ...adapters.catalogue.step_size import is_relative
from ...adapters.models.zoo.load import match_models, model_name_patterns
from ...adapters.parameters import PARAMETERS, check_parameter, parse_parameter
from ...adapters.paths import expand_path, is_file_name
from ...deprecation import current_setting, current_settings
from ...errors import DavylampError, InvalidInput, Unavailable, UnknownName
from ..searches.kinds import parse_search
from .config import AttackChoice, Config, prefixed
from .schema import format_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports] - installed on Python 3.10 only

_LARGEST_FILE = 1 << 20


def read_config(path: str | Path) -> Config:
    """Read the settings of an evaluation from a TOML file. Fractions may be written as texts ("8/255").

    Raises:
        Unavailable: if the file cannot be read.
        InvalidInput: if the file is not valid TOML, or if a value has a wrong type or is out of range.
        UnknownName: if the file has an unknown key.
    """
    table = read_toml(path)
    try:
        return config_from(table)
    except DavylampError as error:
        error.args = (f"{path}: {error}",)
        raise


def base_config(config: Config | str | Path | None, preset: str | None = None) -> tuple[Config, set[str]]:
    """Return the settings from which an evaluation starts, and the names of the settings that they set.

    Args:
        config: settings, or a TOML file with settings. None for the defaults or the preset.
        preset: name of a preset. None for no preset.

    Returns:
        The settings, and the names of the fields that the file or preset sets or that differ from the defaults.

    Raises:
        InvalidInput: if both `config` and `preset` are given.
        DavylampError: if the file cannot be read or is invalid, or if the preset does not exist.
    """
    from .presets import find_preset

    if config is not None and preset is not None:
        raise InvalidInput(
            f"a config and a preset cannot be combined, got {_shown(config)} and {preset}; give one only"
        )
    if isinstance(config, (str, Path)):
        names = [each.name for each in fields(Config)]
        return read_config(config), {current_setting(name, names) for name in read_toml(config)}
    settings = Config() if config is None and preset is None else config or find_preset(str(preset)).config
    usual = Config()
    return settings, {each.name for each in fields(Config) if getattr(settings, each.name) != getattr(usual, each.name)}


def _shown(config: Any) -> str:
    return str(config) if isinstance(config, (str, Path)) else type(config).__name__


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file, and return its values as a dictionary.

    Raises:
        Unavailable: if the file cannot be read.
        InvalidInput: if the file is not valid TOML, is empty, or is larger than 1 MiB.
    """
    try:
        with expand_path(path).open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise InvalidInput(f"expected a TOML file of at most 1 MiB, but {path} is larger")
        if not text.strip():  # left behind by a failed `--print-config > run.toml`
            raise InvalidInput(f"expected settings in {path}, got an empty file")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise Unavailable(f"cannot read the TOML file {path} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, DavylampError):
            raise
        raise InvalidInput(f"expected TOML in {path}, got: {str(error)[:200]}") from error


def config_from(table: Mapping[str, Any]) -> Config:
    """Convert the values of a TOML file to a `Config`."""
    values = _known("", table, Config)
    if values.get("preset"):
        from .presets import find_preset

        preset = values["preset"]
        find_preset(preset if isinstance(preset, str) else format_value(preset))
        if "attacks" not in values:
            start = f"davylamp evaluate --preset {preset} --print-config"
            raise InvalidInput(
                f"preset: the file names the preset {preset} but has no attacks; write a complete file with: {start}"
            )
    return Config(**values)


def parse_attack_choice(item: Any, where: str = "") -> AttackChoice:
    """Convert an entry of `attacks` in a TOML file to an `AttackChoice`."""
    values: dict[str, Any] = {"attack": item} if isinstance(item, str) else _known(where, item, AttackChoice)
    dot = f"{where}." if where else ""
    if "attack" not in values:
        raise InvalidInput(f'{dot}attack: expected the name of an attack, got none; add a line such as attack = "pgd"')
    try:
        choice = AttackChoice(**values)
        more = parameters_of([choice.row or choice.attack])
        read = {
            table: {
                name: prefixed(f"{table}.{name}", reader, name, value, more)
                for name, value in getattr(choice, table).items()
            }
            for table, reader in (("parameters", read_parameter), ("grid", _read_several))
        }
    except DavylampError as error:
        if where and error.path:
            error.args = (str(error).replace(error.path, f"{dot}{error.path}", 1),)
            error.path = f"{dot}{error.path}"
        raise
    return replace(choice, **read)


def write_config(config: Config) -> str:
    """Return the TOML text of a config, which `read_config` can read."""
    import tomli_w

    empty = {item.name: () if item.default == () else None for item in fields(Config)}
    plain = {name: value for name, value in asdict(config).items() if value not in (None, "") and value != empty[name]}
    plain["attacks"] = [
        {name: value for name, value in choice.items() if value not in (None, "", {}, (), False)}
        for choice in plain["attacks"]
    ]
    return tomli_w.dumps(plain)


def expand_models(config: Config) -> Config:
    """Return a config in which each model name with `*` is replaced by the names of all matching models.

    Models that do not fit the data of the config are not matched.
    """
    names: list[str] = []
    for pattern in config.models:
        matches = match_models(pattern, config.data) if "*" in pattern else [pattern]
        if not matches:
            raise UnknownName("model", pattern, model_name_patterns())
        names += [name for name in matches if name not in names]
    return replace(config, models=tuple(names))


def parameters_of(attacks: Iterable[Any]) -> dict[str, Parameter]:
    """Return the parameters that users' attacks define themselves, by name. Other attacks are ignored."""
    attacks = list(attacks)
    searches = [parse_search(attack) for attack in attacks if isinstance(attack, str)]
    names = [each.inside for each in searches if not each.is_portfolio]
    rows = [find_implementation(name) for name in names if is_file_name(name)]
    rows += [resolve_implementation(attack) for attack in attacks if not isinstance(attack, str)]
    return {name: parameter for row in rows for name, parameter in row.more.items()}


def read_parameter(name: str, value: Any, more: Mapping[str, Parameter] | None = None) -> Any:
    """Check the value of a parameter of an attack in a TOML file, and convert the value to its type.

    A number may be written as text if TOML has no other form: a fraction ("1/255"), or a `step_size` relative to
    epsilon ("2 epsilon / steps").

    Raises:
        UnknownName: if the parameter does not exist.
        InvalidInput: if the value has a wrong type or is out of range.
    """
    known = {**PARAMETERS, **(more or {})}
    if isinstance(value, str) and name in known and known[name].type is float:
        return parse_text(name, value, more)
    return check_parameter(name, value, more)


def parse_text(name: str, text: str, more: Mapping[str, Parameter] | None = None) -> Any:
    """Convert the text of a command-line option to the value of a parameter of an attack.

    Raises:
        UnknownName: if the parameter does not exist.
        InvalidInput: if the text is not a valid value of the parameter.
    """
    return text if name == "step_size" and is_relative(text) else parse_parameter(name, text, more)


def _read_several(name: str, values: tuple[Any, ...], more: Mapping[str, Parameter]) -> tuple[Any, ...]:
    return tuple(read_parameter(name, value, more) for value in values)


def _known(where: str, table: Any, record: type) -> dict[str, Any]:
    """Return a TOML table as a dictionary, with old names of keys replaced by the current names."""
    if not isinstance(table, Mapping):
        raise InvalidInput(f"{where}: expected a table, got {format_value(table)}".removeprefix(": "))
    names = [item.name for item in fields(record)]
    values = current_settings(table, names)
    for name in values:
        if name not in names:
            raise UnknownName(f"key in {where}" if where else "key", str(name), names)
    return values
