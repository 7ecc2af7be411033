"""What an evaluation is to do, as one record: read from TOML or options, checked, written back."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from ...adapters.attack import Parameter
from ...adapters.catalogue.lookup import LIBRARIES, find_implementation, row_of
from ...adapters.catalogue.step_size import is_relative
from ...adapters.models.classifier import DRAWS
from ...adapters.models.remote.transport import REQUEST_SIZE, TIMEOUT, Transport, read_rate
from ...adapters.models.room.apart import attacks_apart
from ...adapters.models.room.isolating import SECONDS, Isolate, Isolation
from ...adapters.models.zoo.load import known_models, match_models
from ...adapters.parameters import PARAMETERS, PRECISIONS, check_parameter, parse_number, parse_parameter
from ...adapters.paths import expand_path
from ...adapters.running.draws import MOST_DRAWS
from ...adapters.running.targets import check_target
from ...adapters.threat_model import Norm
from ...adapters.user_file import is_file_name
from ...errors import DavylampError, InvalidInput, Unavailable, UnknownName
from ..cell import MEASURES, SHARD_SIZE
from ..measure_groups import is_group, read_group
from ..metric_names import is_parametrised, options_of, unknown_measure
from ..searches.kinds import AUTO, parse_search
from ..user_metrics import find_metric
from .schema import Option, check_record, show_value

if TYPE_CHECKING:
    LibraryName = PrecisionName = str
else:
    LibraryName, PrecisionName = Literal[tuple(LIBRARIES)], Literal[PRECISIONS]
Transfer = Literal["no", "simple", "full"]
Examples = Literal["own", "original", "both"]
Order = Literal["given", "cheap-first"]
Word = Annotated[str, MinLen(1)]
Count = Annotated[int, Ge(1), Le(2**31 - 1)]
Draws = Annotated[int, Ge(1), Le(MOST_DRAWS)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]  # what NumPy's generators take

_LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class AttackChoice:
    """An attack and how to run it, under one threat model.

    Args:
        attack: "pgd" (every library that has it), "foolbox:pgd", "my_attack.py:MyAttack", or "best(...)" around one of
            them: the smallest radius; "best(adv-lib:fmn,foolbox:pgd)": by several attacks together, "best(auto)" or
            "best": by davylamp's choice of them; "at-saturation(...)": at the radius where
            its success stops growing; or a user's attack itself, see `as_implementation`.
        norm: None: the one that most libraries have.
        epsilon: a number or a fraction such as "8/255". None: the customary one, for attacks that need one. Without a
            norm it is one of linf, for a fixed-budget attack that has linf, if it is at most 1; or of the only norm
            that there is.
        target: "", or "second-likely", "least-likely", "random", or a class number.
        parameters: canonical parameters, on top of the attack's matched ones.
        grid: for "best(...)": parameter -> values to try.
        defaults: each library's defaults instead of the matched parameters.
        surrogate: models that the examples of this attack are made on; empty: as the config says.
        row: the implementation itself, for an attack that was handed over.

    Raises:
        InvalidInput: if a value has a wrong type or lies out of range.
        UnknownName: if there is no such norm.
    """

    attack: Word
    norm: Norm | None = None
    epsilon: Annotated[float, Gt(0)] | None = None
    target: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: bool = False
    surrogate: tuple[Word, ...] = ()
    row: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.attack, str) and callable(self.attack):
            row = row_of(self.attack)
            _store(self, {"attack": row.name, "row": row})
        if isinstance(self.epsilon, str):
            _store(self, {"epsilon": _prefixed("epsilon", parse_number, self.epsilon, "a radius")})
        if self.attack == "best":
            _store(self, {"attack": f"best({AUTO})"})
        _store(self, check_record(AttackChoice, vars(self)))


@dataclass(frozen=True)
class Config:
    """An evaluation: every model with every attack, on one data set.

    A field with an `Option` is an option of `davylamp evaluate` too, in this order.

    Args:
        models: names; `*` matches: "demo:*".
        attacks: what to run on each; a name or a table of plain values becomes an `AttackChoice`.
        data: name of the data.
        limit: only this many images.
        images: only those of these names, of the first `limit`.
        measures: groups of metrics, and user metrics as "my.py:function". Not in the default: "curve", how near the
            nearest adversarial point of each image was after how many passes, of minimum-norm attacks on a CPU in
            float32; "coverage", "boundary", "neurons" and "consistency", with settings as "coverage:sections=100".
        profile: name of the data that "coverage" takes the ranges of the neurons from.
        hierarchy: file with the classes in groups, for semantic confusion; "": WordNet, for ImageNet's.
        libraries: only these; empty: all.
        repaired: the repaired rows as well.
        seeds: each cell once with each.
        max_queries: forward plus backward passes per image, at most.
        batch_size: images per library call.
        precision: of the attacks' passes; the judge's are in full float32. None: as torch is set.
        shard_size: images that are attacked, measured and saved at once.
        order: of the cells of a model: as given, or those first whose images are expected to cost the fewest passes.
        stop_when_fooled: of the attacks under one threat model each is made on the images only that none before it, in
            that order, has fooled: the worst case of each image at fewer passes, in one cell.
        pixels: success and distance count on images of 8 bits, as RoBIC has it.
        transfer: test the examples on the other models: on all ("full"), or from and to the first only ("simple").
        examples: what a defended model sees: examples made on itself ("own"), those made once on its original
            ("original"), or both. `defended.originals_of` says which is whose.
        keep_images: keep every adversarial image, without loss.
        device: where to compute.
        surrogate: models that the examples are made on, by the mean of their logits, to be judged on `models`. Where
            attacks name surrogates of their own, these take the place of them, and of no other attack.
        fit_data: name of the data that attacks which learn once (universal perturbations, generators) learn from, less
            the images that are scored. Without it they learn from the images that they are scored on.
        fit_limit: only this many of them.
        draws: answers that each example is judged by, of models that draw random numbers.
        eot: answers of such a model whose mean an attack sees, each of them a query; 1: it takes it for deterministic.
        isolate: which models run in a process of their own, see `Isolation`; what handed-over modules do never.
        time_limit: seconds that one answer of such a model may take.
        memory_limit: GiB that its process may ask for; None: four fifths of the machine's.
        preset: the paper whose setting this is, if any.
        rate: at most so many images or requests a second to the server of a remote model: "20", "5 requests".
        cost: price of one image that a server answers, whatever the currency.
        token: name of the environment variable with the token of a server, or "HEADER=VARIABLE".
        timeout: seconds that a server has for an answer.
        request_size: images that a server is asked about at once, at most.
        no_answers: do not keep the answers of servers in the results folder, to be used again.

    Raises:
        InvalidInput: if a value has a wrong type or lies out of range; the line begins with its key.
        UnknownName: if there is no such library or group of metrics.
    """

    models: Annotated[
        tuple[Word, ...],
        MinLen(1),
        Option("model, or a pattern: torchvision:resnet50, WEIGHTS.pth+torchvision:NAME, FILE.py:FACTORY, demo:*"),
    ] = ("demo:efficientnet-lite0",)
    attacks: Annotated[
        tuple[AttackChoice, ...],
        MinLen(1),
        Option("attack: pgd, foolbox:pgd, best(foolbox:pgd), at-saturation(foolbox:pgd), FILE.py:ATTACK"),
    ] = field(default_factory=lambda: (AttackChoice("pgd"),))
    data: Annotated[Word, Option("images and labels: demo:imagenet, imagefolder:PATH, npz:PATH, FILE.py:LOAD")] = (
        "demo:imagenet"
    )
    limit: Annotated[Count | None, Option("use at most this many images")] = None
    images: Annotated[tuple[Word, ...], Option("only images with these names", name="image")] = ()
    measures: Annotated[
        tuple[Word, ...],
        Option(
            "further metrics: curve, coverage, boundary, neurons, consistency, or FILE.py:FUNCTION per image",
            name="metric",
        ),
    ] = MEASURES
    profile: Annotated[str, Option("data that define the usual range of each neuron, for coverage")] = ""
    hierarchy: Annotated[str, Option("JSON or CSV file with the class hierarchy, for QI_Wup (default: ImageNet's)")] = (
        ""
    )
    libraries: Annotated[tuple[LibraryName, ...], Option("only this library", name="library")] = ()
    repaired: Annotated[bool, Option("include repaired versions")] = False
    seeds: Annotated[tuple[Seed, ...], MinLen(1), Option("random seed", name="seed")] = (0,)
    max_queries: Annotated[Count | None, Option("limit of forward plus backward passes per image")] = None
    batch_size: Annotated[Count | None, Option("images per call of a library")] = None
    precision: Annotated[
        PrecisionName | None, Option("precision of attacks' passes: float32, tf32, bfloat16; judged in float32")
    ] = None
    shard_size: Annotated[Count, Option("images per shard; a killed run loses at most the shard in progress")] = (
        SHARD_SIZE
    )
    order: Annotated[Order, Option("order of attacks: given, or cheap-first (by expected passes per image)")] = "given"
    stop_when_fooled: Annotated[
        bool, Option("attack only images not fooled yet: worst-case accuracy with fewer passes")
    ] = False
    pixels: Annotated[bool, Option("judge success and distance after rounding to 8 bits")] = False
    transfer: Annotated[Transfer, Option("test examples on the other models: no, simple or full")] = "no"
    examples: Annotated[
        Examples, Option("defences: examples made on the defended model (own), the original, or both")
    ] = "own"
    keep_images: Annotated[bool, Option("keep every adversarial image, lossless")] = False
    device: Annotated[Word, Option("device: cpu, cuda, cuda:1, mps")] = "cpu"
    surrogate: Annotated[
        tuple[Word, ...], Option("make examples on this model and judge them on the others; several form an ensemble")
    ] = ()
    fit_data: Annotated[
        str, Option("training data of attacks that are trained once (uap); scored images are excluded")
    ] = ""
    fit_limit: Annotated[Count | None, Option("use at most this many images of --fit-data")] = None
    draws: Annotated[Draws, Option("randomised models: an example is judged by this many draws")] = DRAWS
    eot: Annotated[Draws, Option("randomised models: the attack sees the mean of this many draws")] = 1
    isolate: Annotated[
        Isolate,
        Option("separate process for models: auto (those from files), yes (all), strict (sandbox required), no"),
    ] = "no"
    time_limit: Annotated[float, Gt(0), Option("isolated models: seconds per answer")] = SECONDS
    memory_limit: Annotated[Annotated[float, Gt(0)] | None, Option("isolated models: memory limit in GiB")] = None
    preset: Annotated[str, Option("a paper's setting: canary, robic, aisafety, fooling, hikdeepsec, autoattack")] = ""
    rate: Annotated[str, Option('remote models: limit per second, "20" images or "5 requests"')] = ""
    cost: Annotated[float, Option("remote models: price of one image")] = 0.0
    token: Annotated[str, Option("remote models: environment variable with the token, or HEADER=VARIABLE")] = ""
    timeout: Annotated[float, Gt(0), Option("remote models: seconds to wait for an answer")] = TIMEOUT
    request_size: Annotated[Count, Option("remote models: images per request")] = REQUEST_SIZE
    no_answers: Annotated[bool, Option("remote models: do not cache answers")] = False

    @property
    def isolation(self) -> Isolation:
        """How models that are loaded by name are kept apart from this process."""
        return Isolation(self.isolate, self.time_limit, self.memory_limit)

    def __post_init__(self) -> None:
        values = dict(vars(self))
        if isinstance(self.attacks, (list, tuple)):
            with attacks_apart(_isolation_of(values)):
                values["attacks"] = tuple(
                    choice if isinstance(choice, AttackChoice) else choice_from(choice, f"attacks[{place}]")
                    for place, choice in enumerate(self.attacks)
                )
        elif isinstance(self.attacks, Mapping):
            raise InvalidInput("attacks: expected a list of tables, each under [[attacks]], got one table")
        _store(self, check_record(Config, values))
        self.transport()
        if self.precision == "tf32" and not self.device.startswith("cuda"):
            raise InvalidInput(f"precision: tf32 is of NVIDIA GPUs, and the device is {self.device}")
        _refuse_files(self)
        for place, measure in enumerate(self.measures):
            if is_file_name(measure) and not is_group(measure):
                find_metric(measure)
            elif is_parametrised(measure) or is_group(measure):
                _prefixed(f"measures[{place}]", options_of if is_parametrised(measure) else read_group, measure)
            else:
                unknown = unknown_measure(f"measures[{place}]", measure)
                unknown.path = f"measures[{place}]"
                raise unknown

    def transport(self, answers: str | Path = "", workers: int = 1) -> Transport:
        """How servers of remote models are asked.

        Args:
            answers: the file in which these are kept, unless the config says that they are not.
            workers: processes that share the rate.
        """
        rate, unit = _prefixed("rate", read_rate, self.rate)
        rate, kept = rate and rate / workers, "" if self.no_answers else str(answers)
        return Transport(rate, unit, self.cost, self.token, self.timeout, self.request_size, answers=kept)


def _isolation_of(values: Mapping[str, Any]) -> Isolation:
    """How attacks of files are kept apart, from values that are not checked yet."""
    given = values["isolate"], values["time_limit"], values["memory_limit"]
    if all(value is None or type(value) in (int, float) for value in given[1:]):
        return Isolation(*given)
    return Isolation(given[0])


def _refuse_files(config: Config) -> None:
    """Refuse what would run a stranger's file in this process."""
    files = [("measures", each) for each in config.measures if is_file_name(each) and not is_group(each)]
    files += [(word, name) for word in ("data", "profile", "fit_data") if is_file_name(name := getattr(config, word))]
    if config.isolate == "strict" and files:
        word, name = files[0]
        error = InvalidInput(
            f"{word}: expected nothing that runs in this process with --isolate strict, got {name}: only models, "
            "defences and attacks of files run in a process of their own"
        )
        error.path = word  # type: ignore[attr-defined]
        raise error


def read_config(path: str | Path) -> Config:
    """Read a TOML file; fractions may be texts ("8/255").

    Raises:
        Unavailable: if there is no such file.
        InvalidInput: if it is no TOML, or a value has a wrong type.
        UnknownName: if it has a key that means nothing.
    """
    table = read_toml(path)
    try:
        return config_from(table)
    except DavylampError as error:
        error.args = (f"{path}: {error}",)
        raise


def read_toml(path: str | Path) -> dict[str, Any]:
    """The plain values of a TOML file.

    Raises:
        Unavailable: if there is no such file.
        InvalidInput: if it is no TOML, or empty.
    """
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # pyright: ignore[reportMissingImports] - installed on Python 3.10 only
    try:
        with expand_path(path).open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise InvalidInput(f"expected a TOML file of at most 1 MiB, got more from {path}")
        if not text.strip():  # what is left of `--print-config > run.toml` that was refused
            raise InvalidInput(f"expected settings in {path}, got an empty file")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise Unavailable(f"expected a TOML file, found none at {path} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, DavylampError):
            raise
        raise InvalidInput(f"expected TOML in {path}, got: {str(error)[:200]}") from error


def config_from(table: Mapping[str, Any]) -> Config:
    """A config from plain values, as TOML holds them."""
    values = _known("", table, Config)
    if values.get("preset"):
        from .presets import find_preset

        preset = values["preset"]
        find_preset(preset if isinstance(preset, str) else show_value(preset))
        if "attacks" not in values:
            start = f"davylamp evaluate --preset {preset} --print-config"
            raise InvalidInput(
                f"preset: expected the attacks of {preset} beside its name, got none; start from {start}"
            )
    return Config(**values)


def choice_from(item: Any, where: str = "") -> AttackChoice:
    """An attack choice from a name or a table of plain values; `where` is its path in the whole: "attacks[0]"."""
    values: dict[str, Any] = {"attack": item} if isinstance(item, str) else _known(where, item, AttackChoice)
    dot = f"{where}." if where else ""
    if "attack" not in values:
        raise InvalidInput(f'{dot}attack: expected the name of an attack, got none; name it: attack = "pgd"')
    if isinstance(values.get("target"), int) and not isinstance(values["target"], bool):
        values["target"] = str(values["target"])
    if isinstance(values.get("epsilon"), str):
        values["epsilon"] = _prefixed(f"{dot}epsilon", parse_number, values["epsilon"], "a radius")
    whole = {item.name: item.default for item in fields(AttackChoice)} | {"parameters": {}, "grid": {}} | values
    checked = check_record(AttackChoice, whole, where)
    if checked["target"]:
        _prefixed(f"{dot}target", check_target, checked["target"])
    more = parameters_of([checked["attack"]])
    for table, read in (("parameters", read_parameter), ("grid", _read_several)):
        checked[table] = {
            name: _prefixed(f"{dot}{table}.{name}", read, name, value, more) for name, value in checked[table].items()
        }
    return AttackChoice(**checked)


def write_config(config: Config) -> str:
    """The config as TOML that `read_config` reads back."""
    import tomli_w

    empty = {item.name: () if item.default == () else None for item in fields(Config)}
    plain = {name: value for name, value in asdict(config).items() if value not in (None, "") and value != empty[name]}
    plain["attacks"] = [
        {name: value for name, value in choice.items() if value not in (None, "", {}, (), False)}
        for choice in plain["attacks"]
    ]
    return tomli_w.dumps(plain)


def expand_models(config: Config) -> Config:
    """The config with every `*` in its models replaced by the names that it matches on the config's data."""
    names: list[str] = []
    for pattern in config.models:
        matches = match_models(pattern, config.data) if "*" in pattern else [pattern]
        if not matches:
            raise UnknownName("model", pattern, known_models())
        names += [name for name in matches if name not in names]
    return replace(config, models=tuple(names))


def parameters_of(attacks: Iterable[Any]) -> dict[str, Parameter]:
    """The parameters that users' attacks among these have besides the vocabulary."""
    searches = [parse_search(attack) for attack in attacks if isinstance(attack, str)]
    names = [each.inside for each in searches if not each.is_portfolio]
    rows = [find_implementation(name) for name in names if is_file_name(name)]
    return {name: parameter for row in rows for name, parameter in row.more.items()}


def read_parameter(name: str, value: Any, more: Mapping[str, Parameter] | None = None) -> Any:
    """A canonical parameter from a plain value: a text is read only where TOML has no word for it.

    That is a fraction ("1/255"), or a `step_size` relative to epsilon ("2 epsilon / steps").

    Raises:
        UnknownName: if there is no such parameter.
        InvalidInput: if the value is not of its type.
    """
    known = {**PARAMETERS, **(more or {})}
    if isinstance(value, str) and name in known and known[name].type is float:
        return parse_text(name, value, more)
    return check_parameter(name, value, more)


def parse_text(name: str, text: str, more: Mapping[str, Parameter] | None = None) -> Any:
    """A canonical parameter from a text, as an option has it.

    Raises:
        UnknownName: if there is no such parameter.
        InvalidInput: if the text is not a value of its type.
    """
    return text if name == "step_size" and is_relative(text) else parse_parameter(name, text, more)


def _store(record: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)  # the record is frozen for everyone else


def _prefixed(path: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns; its complaint begins with the key path."""
    try:
        return function(*arguments)
    except DavylampError as error:
        error.args, error.path = (f"{path}: {error}",), path
        raise


def _read_several(name: str, values: tuple[Any, ...], more: Mapping[str, Parameter]) -> tuple[Any, ...]:
    return tuple(read_parameter(name, value, more) for value in values)


def _known(where: str, table: Any, record: type) -> dict[str, Any]:
    """The table as a dict, if every key of it is a field of the record."""
    if not isinstance(table, Mapping):
        raise InvalidInput(f"{where}: expected a table, got {show_value(table)}".removeprefix(": "))
    names = [item.name for item in fields(record)]
    for name in table:
        if name not in names:
            raise UnknownName(f"key in {where}" if where else "key", str(name), names)
    return dict(table)
