"""What an evaluation is to do, as one record: read from TOML or options, checked, written back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, get_args

from ..adapters.parameters import check_parameter, parse_number, parse_parameter
from ..adapters.paths import expand_path
from ..adapters.zoo import known_models
from ..errors import InvalidInput, Unavailable, UnknownName
from .cell import SHARD_SIZE
from .records import MEASURES
from .relative import is_relative

Transfer = Literal["no", "simple", "full"]
ExecutorName = Literal["local", "ray"]


@dataclass(frozen=True)
class AttackChoice:
    """An attack and how to run it, under one threat model.

    Args:
        attack: "pgd" (every library that has it), "foolbox:pgd", or "best(...)" around either: the smallest radius.
        norm: None: the one that most libraries have.
        epsilon: None: the customary one, for attacks that need one.
        target: "", or "second-likely", "least-likely", "random", or a class number.
        parameters: canonical parameters, on top of the attack's matched ones.
        grid: for "best(...)": parameter -> values to try.
        defaults: each library's own defaults instead of the matched parameters.
    """

    attack: str
    norm: str | None = None
    epsilon: float | None = None
    target: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: bool = False


@dataclass(frozen=True)
class Config:
    """An evaluation: every model with every attack, on one data set.

    Args:
        models: names; `*` matches: "demo:*".
        attacks: what to run on each.
        data: name of the data.
        limit: only this many images.
        seeds: each cell once with each.
        libraries: only these; empty: all.
        repaired: the repaired rows as well.
        max_queries: forward plus backward passes per image, at most.
        batch_size: images per library call.
        pixels: success and distance count on images of 8 bits, as RoBIC has it.
        transfer: test the examples on the other models: on all ("full"), or from and to the first only ("simple").
        keep_images: keep every adversarial image, without loss.
        measures: groups of metrics.
        shard_size: images that are attacked, measured and saved at once.
        device: where to compute.
        preset: the paper whose setting this is, if any.
    """

    models: tuple[str, ...] = ("demo:efficientnet-lite0",)
    attacks: tuple[AttackChoice, ...] = (AttackChoice("pgd"),)
    data: str = "demo:imagenet"
    limit: int | None = None
    seeds: tuple[int, ...] = (0,)
    libraries: tuple[str, ...] = ()
    repaired: bool = False
    max_queries: int | None = None
    batch_size: int | None = None
    pixels: bool = False
    transfer: Transfer = "no"
    keep_images: bool = False
    measures: tuple[str, ...] = MEASURES
    shard_size: int = SHARD_SIZE
    device: str = "cpu"
    preset: str = ""

    def __post_init__(self) -> None:
        if not self.models or not self.attacks or not self.seeds:
            raise InvalidInput("expected at least one model, one attack and one seed, got none")
        if self.transfer not in get_args(Transfer):
            raise InvalidInput(f"expected transfer no, simple or full, got {self.transfer!r}")
        for group in self.measures:
            if group not in MEASURES:
                raise UnknownName("group of metrics", group, MEASURES)
        for name in ("limit", "shard_size", "max_queries", "batch_size"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidInput(f"expected {name} as a whole number >= 1, got {value!r}")


def read_config(path: str | Path) -> Config:
    """Read a TOML file; fractions may be texts ("8/255").

    Raises:
        Unavailable: if there is no such file.
        InvalidInput: if it is no TOML, or a value has a wrong type.
        UnknownName: if it has a key that means nothing.
    """
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # pyright: ignore[reportMissingImports] - installed on Python 3.10 only
    try:
        found = tomllib.loads(expand_path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Unavailable(f"expected a TOML file, found none at {path} ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"expected TOML in {path}, got: {error}") from error
    return config_from(found)


def config_from(found: Mapping[str, Any]) -> Config:
    """A config from plain values, as TOML holds them."""
    values = _known("setting", found, Config)
    if "attacks" in values:
        values["attacks"] = tuple(choice_from(item) for item in _listed("attacks", values["attacks"]))
    for name in ("models", "seeds", "libraries", "measures"):
        if name in values:
            values[name] = tuple(_listed(name, values[name]))
    return Config(**values)


def choice_from(item: Any) -> AttackChoice:
    """An attack choice from a name or a table of plain values."""
    values: dict[str, Any] = (
        {"attack": item} if isinstance(item, str) else _known("setting of an attack", item, AttackChoice)
    )
    if "attack" not in values:
        raise InvalidInput(f"expected attack = NAME in every [[attacks]], got {', '.join(values) or 'nothing'}")
    if isinstance(values.get("epsilon"), str):
        values["epsilon"] = parse_number(values["epsilon"], "epsilon")
    values["parameters"] = {name: read_parameter(name, value) for name, value in values.get("parameters", {}).items()}
    values["grid"] = {
        name: tuple(read_parameter(name, value) for value in _listed(name, several))
        for name, several in values.get("grid", {}).items()
    }
    return AttackChoice(**values)


def write_config(config: Config) -> str:
    """The config as TOML that `read_config` reads back."""
    import tomli_w

    plain = {name: value for name, value in asdict(config).items() if value not in (None, "", ())}
    plain["attacks"] = [
        {name: value for name, value in choice.items() if value not in (None, "", {}, False)}
        for choice in plain["attacks"]
    ]
    return tomli_w.dumps(plain)


def expand_models(config: Config) -> Config:
    """The config with every `*` in its models replaced by the names that it matches."""
    names: list[str] = []
    for pattern in config.models:
        found = [pattern] if "*" not in pattern else [name for name in _model_names(pattern) if fnmatch(name, pattern)]
        if not found:
            raise UnknownName("model", pattern, known_models())
        names += [name for name in found if name not in names]
    return replace(config, models=tuple(names))


def _model_names(pattern: str) -> list[str]:
    if pattern.startswith("torchvision:"):
        from torchvision import models

        return [f"torchvision:{name}" for name in models.list_models(module=models)]
    return [name for name in known_models() if name.startswith("demo:")]


def _known(kind: str, found: Any, record: type) -> dict[str, Any]:
    if not isinstance(found, Mapping):
        raise InvalidInput(f"expected a table, got {found!r}")
    names = [item.name for item in fields(record)]
    for name in found:
        if name not in names:
            raise UnknownName(kind, name, names)
    return dict(found)


def _listed(name: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise InvalidInput(f"expected a list for {name}, got {value!r}")
    return list(value)


def read_parameter(name: str, value: Any) -> Any:
    """A canonical parameter from a text or a number; a `step_size` may be relative to epsilon ("2 epsilon / steps").

    Raises:
        UnknownName: if there is no such parameter.
        InvalidInput: if the value is not of its type.
    """
    if name == "step_size" and is_relative(value):
        return value
    return parse_parameter(name, value) if isinstance(value, str) else check_parameter(name, value)
