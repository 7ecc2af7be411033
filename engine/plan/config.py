"""The settings of an evaluation as dataclasses, with types, ranges, defaults and command-line options.

Importing this module does not import torch. `config_file` reads the settings from TOML and from texts.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from ...adapters.attack import current_implementation
from ...adapters.defaults import (
    DRAWS,
    MOST_DRAWS,
    REQUEST_SIZE,
    SECONDS,
    TARGETS,
    TIMEOUT,
    Isolate,
    Norm,
)
from ...adapters.parameters import PRECISIONS, parse_number
from ...adapters.paths import is_file_name
from ...deprecation import takes_old_names
from ...errors import DavylampError, InvalidInput, UnknownName
from ..cell_defaults import ALL_MEASURES, MEASURES, SHARD_SIZE
from .schema import Option, check_record

if TYPE_CHECKING:
    from ...adapters.models.remote.transport import Transport
    from ...adapters.models.sandbox.isolation import Isolation

    PrecisionName = str
else:
    PrecisionName = Literal[PRECISIONS]
Transfer = Literal["no", "simple", "full"]
Examples = Literal["defended", "original", "both"]
Order = Literal["given", "cheap-first"]
Word = Annotated[str, MinLen(1)]
Count = Annotated[int, Ge(1), Le(2**31 - 1)]
Samples = Annotated[int, Ge(1), Le(MOST_DRAWS)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]  # what NumPy's generators take


@dataclass(frozen=True)
class AttackChoice:
    """An attack and its settings, under one threat model.

    Args:
        attack: "pgd" for every library that has it, "foolbox:pgd", "my_attack.py:MyAttack", or a user's attack itself,
            see `as_implementation`. "best(foolbox:pgd)" searches for the smallest radius,
            "best(adv-lib:fmn,foolbox:pgd)" searches with several attacks together, and "best(auto)" or "best" with
            attacks that davylamp chooses. "at-saturation(foolbox:pgd)" runs the attack at the radius beyond which its
            success no longer grows.
        norm: None for the norm that most libraries support.
        epsilon: a number or a fraction such as "8/255". None for the customary radius, for attacks that need one. If
            `norm` is None, a radius of at most 1 is a linf radius for a fixed-budget attack that supports linf. In all
            other cases, `norm` may be None only if the attack has a single norm.
        target: "", or "second-likely", "least-likely", "random", or a class number.
        parameters: canonical parameters, in addition to the attack's matched ones.
        grid: for "best(...)", the parameters to vary and the values to try.
        defaults: whether to use each library's defaults instead of the matched parameters.
        surrogate: models on which the examples of this attack are made; empty to follow the config.
        row: the implementation, if the caller passed an attack.

    Raises:
        InvalidInput: if a value has a wrong type or is out of range.
        UnknownName: if there is no such norm.
    """

    attack: Word
    norm: Annotated[Norm | None, Option("norm of the perturbation: linf, l2, l1, l0 or unrestricted")] = None
    epsilon: Annotated[
        Annotated[float, Gt(0)] | None, Option("radius of the ball, for pixels in [0, 1]: 4/255", also="eps")
    ] = None
    target: Annotated[str, Option("target class: second-likely, least-likely, random or a class")] = ""
    parameters: Annotated[Mapping[str, Any], Option("parameter of the attack, name=value", name="param")] = field(
        default_factory=dict
    )
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: Annotated[bool, Option("use each library's default parameters")] = False
    surrogate: tuple[Word, ...] = ()
    row: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.attack, str) and callable(self.attack):
            from ...adapters.catalogue.lookup import resolve_implementation

            row = resolve_implementation(self.attack)
            _store(self, {"attack": row.name, "row": row})
        if isinstance(self.attack, str):
            _store(self, {"attack": current_implementation(self.attack)})
        if isinstance(self.epsilon, str):
            _store(self, {"epsilon": prefixed("epsilon", parse_number, self.epsilon, "a radius")})
        if isinstance(self.target, int) and not isinstance(self.target, bool):
            _store(self, {"target": str(self.target)})
        if self.attack == "best":
            _store(self, {"attack": "best(auto)"})
        _store(self, check_record(AttackChoice, vars(self)))
        if self.target and self.target not in TARGETS:
            from ...adapters.running.targets import check_target

            prefixed("target", check_target, self.target)


@takes_old_names()
@dataclass(frozen=True)
class Config:
    """An evaluation: every model with every attack, on one data set.

    A field with an `Option` is also an option of `davylamp evaluate`; the options have the order of the fields.

    Args:
        models: names; `*` matches any text: "demo:*".
        attacks: attacks to run on each model; a name or a table of plain values becomes an `AttackChoice`.
        data: name of the data.
        limit: largest number of images.
        images: names of images to select among the first `limit`.
        measures: groups of metrics, metrics (for their group), "all" for the groups in `ALL_MEASURES`, and user metrics
            as "my.py:function". Some groups are not in the default: "attention" and "perceptual", which
            `measure_folder` adds later if images are kept; "curve", the distance of the nearest adversarial example of
            each image by number of passes, for minimum-norm attacks on a CPU in float32; "coverage", "boundary",
            "neurons" and "consistency", with settings as "coverage:sections=100".
        neuron_profile: name of the data that define the ranges of the neurons for "coverage".
        hierarchy: file with the hierarchy of classes, for semantic confusion; "" for WordNet, which covers ImageNet's
            classes.
        libraries: names of the libraries to use; empty for all.
        fixed: whether to include fixed variants.
        seeds: random seeds; each run is repeated with each seed.
        max_queries: largest number of forward plus backward passes per image.
        batch_size: images per library call.
        precision: precision of the attacks' passes; the judge uses full float32. None for torch's setting.
        shard_size: number of images that are attacked, measured and saved together.
        order: order of a model's runs: as given, or by the expected passes per image, ascending.
        stop_when_fooled: whether the attacks under one threat model run in this order as one worst case. Each attack
            then runs only on the images that the attacks before it have not fooled, which saves passes.
        eight_bit: whether success and distance are measured on 8-bit images, as in RoBIC.
        transfer: whether to test the examples on the other models: on all of them ("full"), only from and to the first
            model ("simple"), or not at all.
        examples: model on which the examples for a defended model are made: the defended model ("defended"), its
            undefended model ("original"), or both. `defence_pairs.undefended_models` pairs the models.
        keep_images: whether to store every adversarial image, without loss.
        device: torch device.
        surrogate: models on which the examples are made, by the mean of their logits, and then judged on `models`. If
            some attacks have a `surrogate`, this value replaces theirs, and the other attacks run without a surrogate.
        fit_data: name of the fit data of fitted attacks (universal perturbations, generators), without the evaluation
            images. If empty, they are fitted on the evaluation images.
        fit_limit: largest number of fit images.
        judge_samples: number of samples of a random model on which each example is judged.
        eot: number of samples of a random model whose mean an attack sees. Each sample is a query. With 1, the attack
            treats the model as deterministic.
        isolate: which models run in a separate process, see `Isolation`. Modules passed by the caller always run in
            this process.
        time_limit: time limit of one call of an isolated model, in seconds.
        memory_limit: memory limit of the process of an isolated model, in GiB; None for four fifths of the machine's
            memory.
        preset: name of the published evaluation on whose settings the config is based; "" without one.
        request_rate: limit of images or requests per second to the server of a remote model: "20", "5 requests".
        price_per_image: price of one image sent to a server, in any currency.
        token: name of the environment variable with the token of a server, or "HEADER=VARIABLE".
        timeout: time to wait for a server's response, in seconds.
        request_size: largest number of images per request.
        no_cache: if True, the outputs of servers are not cached in the results folder.

    Raises:
        InvalidInput: if a value has a wrong type or is out of range. The message begins with the key.
        UnknownName: if there is no such library or group of metrics.
    """

    models: Annotated[
        tuple[Word, ...],
        MinLen(1),
        Option(
            "model, or a pattern: torchvision:resnet50, WEIGHTS.pth+torchvision:NAME, FILE.py:FACTORY, demo:*",
            also="model",
        ),
    ] = ("demo:efficientnet-lite0",)
    attacks: Annotated[
        tuple[AttackChoice, ...],
        MinLen(1),
        Option(
            "attack: pgd, foolbox:pgd, best(foolbox:pgd), at-saturation(foolbox:pgd), FILE.py:ATTACK", also="attack"
        ),
    ] = field(default_factory=lambda: (AttackChoice("pgd"),))
    data: Annotated[Word, Option("images and labels: demo:imagenet, imagefolder:PATH, npz:PATH, FILE.py:LOAD")] = (
        "demo:imagenet"
    )
    limit: Annotated[Count | None, Option("use at most this many images")] = None
    images: Annotated[tuple[Word, ...], Option("only images with these names", name="image")] = ()
    measures: Annotated[
        tuple[Word, ...],
        Option(
            "more metrics: ALMS, attention, all, curve, coverage, boundary, neurons, consistency or FILE.py:FUNCTION",
            name="metric",
            also="metrics",
        ),
    ] = MEASURES
    neuron_profile: Annotated[str, Option("data that define the usual range of each neuron, for coverage")] = ""
    hierarchy: Annotated[str, Option("JSON or CSV file with the class hierarchy, for QI_Wup (default: ImageNet's)")] = (
        ""
    )
    libraries: Annotated[tuple[Word, ...], Option("only this library", name="library", also="libraries")] = ()
    fixed: Annotated[bool, Option("include the fixed variants, `@fixed`")] = False
    seeds: Annotated[tuple[Seed, ...], MinLen(1), Option("random seed", name="seed")] = (0,)
    max_queries: Annotated[Count | None, Option("limit of forward plus backward passes per image")] = None
    batch_size: Annotated[Count | None, Option("images per call of a library")] = None
    precision: Annotated[
        PrecisionName | None,
        Option("precision of the attacks: float32, tf32, bfloat16; examples are judged in float32"),
    ] = None
    shard_size: Annotated[Count, Option("images per shard; a killed run loses at most the shard in progress")] = (
        SHARD_SIZE
    )
    order: Annotated[Order, Option("order of attacks: given, or cheap-first (by expected passes per image)")] = "given"
    stop_when_fooled: Annotated[
        bool, Option("attack only images not fooled yet: worst-case accuracy with fewer passes")
    ] = False
    eight_bit: Annotated[bool, Option("judge success and distance after rounding to 8 bits")] = False
    transfer: Annotated[Transfer, Option("test examples on the other models: no, simple or full")] = "no"
    examples: Annotated[Examples, Option("defences: examples made on the defended model, the original, or both")] = (
        "defended"
    )
    keep_images: Annotated[bool, Option("keep every adversarial image, lossless")] = False
    device: Annotated[Word, Option("device: cpu, cuda, cuda:1, cuda:all (all GPUs), mps")] = "cpu"
    surrogate: Annotated[
        tuple[Word, ...],
        Option("make examples on this model and judge them on the others; several form an ensemble"),
    ] = ()
    fit_data: Annotated[
        str, Option("fit images of attacks that are fitted first (uap); evaluation images are excluded")
    ] = ""
    fit_limit: Annotated[Count | None, Option("use at most this many images of --fit-data")] = None
    judge_samples: Annotated[Samples, Option("randomised models: samples on which each example is judged")] = DRAWS
    eot: Annotated[Samples, Option("randomised models: samples whose mean the attack sees")] = 1
    isolate: Annotated[
        Isolate,
        Option(
            "separate process for models: auto (those from files), yes (all), strict (sandbox required), no",
        ),
    ] = "no"
    time_limit: Annotated[float, Gt(0), Option("isolated models: time limit per call, in seconds")] = SECONDS
    memory_limit: Annotated[Annotated[float, Gt(0)] | None, Option("isolated models: memory limit in GiB")] = None
    preset: Annotated[str, Option("a paper's setting: canary, robic, aisafety, fooling, hikdeepsec, autoattack")] = ""
    request_rate: Annotated[str, Option('remote models: limit per second, "20" images or "5 requests"')] = ""
    price_per_image: Annotated[float, Option("remote models: price of one image")] = 0.0
    token: Annotated[str, Option("remote models: environment variable with the token, or HEADER=VARIABLE")] = ""
    timeout: Annotated[float, Gt(0), Option("remote models: seconds to wait for a response")] = TIMEOUT
    request_size: Annotated[Count, Option("remote models: images per request")] = REQUEST_SIZE
    no_cache: Annotated[bool, Option("remote models: do not cache answers")] = False

    @property
    def isolation(self) -> "Isolation":
        """Isolation of models that are loaded by name."""
        from ...adapters.models.sandbox.isolation import Isolation

        return Isolation(self.isolate, self.time_limit, self.memory_limit)

    def __post_init__(self) -> None:
        values = dict(vars(self))
        if isinstance(self.attacks, (list, tuple)):
            values["attacks"] = _choices_of(values)
        elif isinstance(self.attacks, Mapping):
            raise InvalidInput("attacks: expected a list of tables, each under [[attacks]], got one table")
        _store(self, check_record(Config, values))
        self.transport()
        if self.precision == "tf32" and not self.device.startswith("cuda"):
            raise _at("precision", InvalidInput(f"precision: tf32 needs an NVIDIA GPU, got device {self.device}"))
        _check_libraries(self.libraries)
        _check_files(self)
        _store(self, {"measures": _named_measures(self.measures)})

    def transport(self, answers: str | Path = "", workers: int = 1) -> "Transport":
        """Return the HTTP settings for remote models.

        Args:
            answers: file of the answer cache, unless the config disables it.
            workers: number of processes that share the rate limit.
        """
        from ...adapters.models.remote.transport import Transport, read_rate

        rate, unit = prefixed("request_rate", read_rate, self.request_rate)
        rate, kept = rate and rate / workers, "" if self.no_cache else str(answers)
        return Transport(rate, unit, self.price_per_image, self.token, self.timeout, self.request_size, answers=kept)


def _isolation_of(values: Mapping[str, Any]) -> "Isolation":
    """Return the isolation for attacks from files, from values that are not validated yet."""
    from ...adapters.models.sandbox.isolation import Isolation

    given = values["isolate"], values["time_limit"], values["memory_limit"]
    if all(value is None or type(value) in (int, float) for value in given[1:]):
        return Isolation(*given)
    return Isolation(given[0])


def _choices_of(values: Mapping[str, Any]) -> tuple[AttackChoice, ...]:
    if all(isinstance(choice, AttackChoice) for choice in values["attacks"]):
        return tuple(values["attacks"])
    from ...adapters.models.sandbox.isolation import attack_isolation_context
    from .config_file import parse_attack_choice

    with attack_isolation_context(_isolation_of(values)):
        return tuple(
            choice if isinstance(choice, AttackChoice) else parse_attack_choice(choice, f"attacks[{place}]")
            for place, choice in enumerate(values["attacks"])
        )


def _check_libraries(libraries: tuple[str, ...]) -> None:
    """Raise UnknownName for unknown libraries. If none are given, the catalogue is not loaded."""
    if not libraries:
        return
    from ...adapters.catalogue.assemble import catalogue

    known = catalogue().libraries
    for place, name in enumerate(libraries):
        if name not in known:
            raise _at(f"libraries[{place}]", UnknownName(f"libraries[{place}]", name, known))


def _check_files(config: Config) -> None:
    """Raise InvalidInput if `isolate=strict` and code from a file would run in this process."""
    if config.isolate != "strict":
        return
    from ..measure_groups import is_group

    files = [("measures", each) for each in config.measures if is_file_name(each) and not is_group(each)]
    files += [
        (word, name) for word in ("data", "neuron_profile", "fit_data") if is_file_name(name := getattr(config, word))
    ]
    if files:
        word, name = files[0]
        raise _at(
            word,
            InvalidInput(
                f"{word}: {name} is code that would run in this process, which `isolate=strict` forbids; give data "
                "without code (npz:FILE, imagefolder:FOLDER) and no metric from a file, or use `isolate=yes`"
            ),
        )


def _named_measures(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the measures with these names: groups, also those of single metrics, and user functions.

    Raises:
        DavylampError: for an unknown group of metrics, group setting or user function.
    """
    if {*names} <= {*MEASURES}:
        return names
    from ..measure_groups import is_group, read_group
    from ..metric_names import is_parametrised, measures_named, metric_parameter, unknown_measure
    from ..user_metrics import find_metric

    for place, measure in enumerate(
        measures := tuple(dict.fromkeys(each for n in names for each in measures_named(n)))
    ):
        path = f"measures[{place}]"
        if is_file_name(measure) and not is_group(measure):
            find_metric(measure)
        elif is_parametrised(measure) or is_group(measure):
            prefixed(path, metric_parameter if is_parametrised(measure) else read_group, measure)
        else:
            raise _at(path, unknown_measure(path, measure))
    return measures if measures == names else in_usual_order(measures)


def in_usual_order(measures: Iterable[str]) -> tuple[str, ...]:
    """Return measures without repetition: the groups of `ALL_MEASURES` in their order, then the others."""
    given = dict.fromkeys(measures)
    return tuple(dict.fromkeys((*(name for name in ALL_MEASURES if name in given), *given)))


def _at(path: str, error: DavylampError) -> DavylampError:
    """Return the error with a key path before its message, unless the message already contains the path."""
    error.path = path
    return error


def prefixed(path: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function. If it raises an error, the message begins with the key path."""
    try:
        return function(*arguments)
    except DavylampError as error:
        error.args, error.path = (f"{path}: {error}",), path
        raise


def _store(record: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)  # the dataclass is frozen
