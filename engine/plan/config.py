"""The settings of an evaluation (`Config`) and of an attack in an evaluation (`AttackChoice`).

The type hints of the fields contain ranges and command-line options. Importing this module does not import torch.
`config_file` reads and writes the settings as TOML.
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
    """An attack of an evaluation, with its threat model and parameters.

    Args:
        attack: name of the attack, in one of these forms:

            - "pgd": the implementations of all libraries;
            - "foolbox:pgd": the implementation of one library;
            - "my_attack.py:MyAttack": a user's attack in a Python file. The attack itself may be passed as well, see
              `as_implementation`;
            - "best(foolbox:pgd)": for each image, a search for the smallest radius at which the attack succeeds;
            - "best(adv-lib:fmn,foolbox:pgd)": such a search with several attacks together;
            - "best(auto)" or "best": such a search with attacks that davylamp chooses;
            - "at-saturation(foolbox:pgd)": the attack at its saturation radius, beyond which its success no longer
              grows.
        norm: norm of the perturbation. None for the norm that most libraries support.
        epsilon: radius, for pixels in [0, 1]: a number, or a fraction such as "8/255". None for the customary radius,
            if the attack needs a radius. A radius without a norm is allowed in two cases. If the attack is a
            fixed-budget attack that supports linf, a radius of at most 1 is a linf radius. If the attack has a single
            norm, the radius is in this norm.
        target: target class of a targeted attack: "second-likely", "least-likely", "random" or a class number. "" for
            an untargeted attack.
        parameters: values of canonical parameters, by name. They override the matched parameters, which have the same
            values in all libraries.
        grid: values to try for parameters of "best(...)", by name of the parameter.
        defaults: whether to use the default parameters of each library instead of the matched parameters.
        surrogate: names of the models on which the examples of this attack are made. If empty, the field `surrogate` of
            the config applies.
        row: implementation of the attack, if the caller passed the attack itself instead of a name.

    Raises:
        InvalidInput: if a value has a wrong type or is out of range.
        UnknownName: if the norm does not exist.
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
    """Settings of an evaluation, which runs every attack on every model, with one data set.

    Fields with an `Option` are also options of `davylamp evaluate`, in the order of the fields.

    Args:
        models: names of the models. `*` matches any text, as in "demo:*".
        attacks: attacks to run on each model. A name or a table of plain values is converted to an `AttackChoice`.
        data: name of the data.
        limit: number of images to use, from the beginning of the data. None for all.
        images: names of the images to use, among the first `limit` images. Empty for all of these images.
        measures: groups of metrics to compute for each run. The name of a metric stands for its group, and "all" for
            the groups in `ALL_MEASURES`. "my.py:function" is a user's metric. These groups are not in the default:

            - "attention" and "perceptual". `measure_folder` can compute them later if images are kept;
            - "curve": distance of the nearest adversarial example of each image, by number of passes. Only for
              minimum-norm attacks on a CPU in float32;
            - "coverage", "boundary", "neurons" and "consistency", which may have settings, as in
              "coverage:sections=100".
        neuron_profile: name of the data on which the range of each neuron is measured, for the group "coverage".
        hierarchy: file with a hierarchy of the classes, for the group "confusion". "" for WordNet, which contains the
            classes of ImageNet.
        libraries: names of the libraries to use. Empty for all.
        fixed: whether to run fixed variants of implementations, in which a known issue is corrected.
        seeds: random seeds. Each run is repeated with each seed.
        max_queries: largest number of forward and backward passes for an image. None for no limit.
        batch_size: number of images per call of a library. None for the default.
        precision: precision of the model while it is attacked. Examples are always judged in float32. None for torch's
            current setting.
        shard_size: number of images that are attacked, measured and saved together.
        order: order in which the attacks run on a model: as given, or by expected number of passes, ascending.
        stop_when_fooled: whether attacks with the same threat model are joined into one worst-case run, which saves
            passes. Each attack then runs only on the images that no earlier attack fooled.
        eight_bit: whether examples are rounded to 8 bits before success and distance are measured, as in RoBIC.
        transfer: on which other models the examples of a run are tested. "full": on all models. "simple": examples of
            the first model on the others, and examples of the others on the first model. "no": on no other model.
        examples: model on which the examples for a defended model are made. "defended": on the defended model.
            "original": on its undefended model. "both": on both models. `defence_pairs.undefended_models` finds the
            undefended model.
        keep_images: whether to store every adversarial image, without loss.
        device: torch device of models that are loaded by name.
        surrogate: names of models on which the examples are made. The examples are then judged on `models`. The logits
            of several surrogates are averaged. If some attacks have a field `surrogate`, this value replaces the field
            of these attacks, and the other attacks run without a surrogate.
        fit_data: name of the data on which fitted attacks are fitted, such as universal perturbations and generators.
            Evaluation images in these data are not used. If empty, attacks are fitted on the evaluation images.
        fit_limit: number of images of `fit_data` to use, from the beginning. None for all.
        judge_samples: number of samples of a randomised model on which each example is judged.
        eot: number of samples of a randomised model that are averaged for each query of an attack. Each sample counts
            as a query. With 1, the attack treats the model as deterministic.
        isolate: which models run in a separate process, see `Isolation`. Modules that the caller passes always run in
            this process.
        time_limit: time limit for one call of an isolated model, in seconds.
        memory_limit: memory limit for the process of an isolated model, in GiB. None for four fifths of the machine's
            memory.
        preset: name of the published evaluation from which the settings come. "" if they come from no preset.
        request_rate: limit per second for requests to the server of a remote model, such as "20" (images) or
            "5 requests".
        price_per_image: price of sending one image to the server of a remote model, in any currency.
        token: name of the environment variable with the token for the server of a remote model, or "HEADER=VARIABLE".
        timeout: time to wait for a response of a server, in seconds.
        request_size: largest number of images per request to a server.
        no_cache: whether the results folder does not cache the outputs of servers.

    Raises:
        InvalidInput: if a value has a wrong type or is out of range. The message begins with the name of the field.
        UnknownName: if a library or a group of metrics does not exist.
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
        str, Option("images on which attacks such as uap are fitted; evaluation images are excluded")
    ] = ""
    fit_limit: Annotated[Count | None, Option("use at most this many images of --fit-data")] = None
    judge_samples: Annotated[
        Samples, Option("randomised models: number of samples on which each example is judged")
    ] = DRAWS
    eot: Annotated[Samples, Option("randomised models: number of samples whose mean the attack sees")] = 1
    isolate: Annotated[
        Isolate,
        Option(
            "separate process for models: auto (those from files), yes (all), strict (sandbox required), no",
        ),
    ] = "no"
    time_limit: Annotated[float, Gt(0), Option("isolated models: time limit per call, in seconds")] = SECONDS
    memory_limit: Annotated[Annotated[float, Gt(0)] | None, Option("isolated models: memory limit in GiB")] = None
    preset: Annotated[str, Option("a paper's setting: canary, robic, aisafety, fooling, hikdeepsec, autoattack")] = ""
    request_rate: Annotated[str, Option('remote models: largest number per second, "20" (images) or "5 requests"')] = ""
    price_per_image: Annotated[float, Option("remote models: price of one image")] = 0.0
    token: Annotated[str, Option("remote models: environment variable with the token, or HEADER=VARIABLE")] = ""
    timeout: Annotated[float, Gt(0), Option("remote models: seconds to wait for a response")] = TIMEOUT
    request_size: Annotated[Count, Option("remote models: images per request")] = REQUEST_SIZE
    no_cache: Annotated[bool, Option("remote models: do not cache answers")] = False

    @property
    def isolation(self) -> "Isolation":
        """Which models loaded by name run in a separate process, with their limits of time and memory."""
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
            answers: file in which outputs of servers are cached. "" for no cache. Ignored if `no_cache` is set.
            workers: number of processes that share the rate limit.
        """
        from ...adapters.models.remote.transport import Transport, read_rate

        rate, unit = prefixed("request_rate", read_rate, self.request_rate)
        rate, kept = rate and rate / workers, "" if self.no_cache else str(answers)
        return Transport(rate, unit, self.price_per_image, self.token, self.timeout, self.request_size, answers=kept)


def _isolation_of(values: Mapping[str, Any]) -> "Isolation":
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
                f"{word}: the code in {name} would run in this process, which `isolate=strict` forbids; use data "
                "without code (such as npz:FILE) and davylamp's own metrics, or set `isolate=yes`"
            ),
        )


def _named_measures(names: tuple[str, ...]) -> tuple[str, ...]:
    """Convert names of groups, metrics and user functions to measures. A metric becomes the group that computes it.

    Raises:
        DavylampError: if a group, a metric, a setting of a group or a user function does not exist.
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
    """Return measures without duplicates: first the groups of `ALL_MEASURES` in that order, then the other measures."""
    given = dict.fromkeys(measures)
    return tuple(dict.fromkeys((*(name for name in ALL_MEASURES if name in given), *given)))


def _at(path: str, error: DavylampError) -> DavylampError:
    """Set the key path of an error, such as "attacks[0].norm", and return the error."""
    error.path = path
    return error


def prefixed(path: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and return its result. If it raises a DavylampError, put the key path before the message."""
    try:
        return function(*arguments)
    except DavylampError as error:
        error.args, error.path = (f"{path}: {error}",), path
        raise


def _store(record: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)  # the dataclass is frozen
