"""Common setting of AISafety's Tables II to IX (Liu, Guo et al.): attacks, models and data.

The paper uses WideResNet-28 on CIFAR-10 and VGG-16 on SVHN, and publishes no weights, so other models replace them.
The published CIFAR-10 rows of the undefended model and of random resizing are compared with davylamp's ResNet-18 on
samples of CIFAR-10. All other published rows are compared with small models of digits, which are trained and defended
as in the paper.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...engine import Config
from ...engine.plan.presets import find_preset
from ...engine.statistics.bootstrap import Estimate
from ..shared.counterpart import Counterpart
from ..shared.paper_numbers import find_value, load_published
from ..shared.paper_result import PaperLine, join_results
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, SettingRun, Size, run_setting

MODELS: Mapping[str, str] = {
    "standard": "VANILLA",
    "pgd-training": "PAT",
    "fgsm-training": "SAT",
    "trades": "TRADES",
    "standard+resize-pad": "RAND",
}
SAME = {"NAT": "SAT"}  # Table IV's NAT has Table II's numbers of SAT less those of VANILLA: one model, two names
RESNET = "demo:cifar10-resnet18"
CIFAR: Mapping[str, str] = {RESNET: "VANILLA", f"{RESNET}+resize-pad": "RAND"}
SURROGATE, INCEPTION = "Inception-V3", ("digits:inception",)  # the paper's surrogate, and its replacement
DATASETS = ("CIFAR-10", "SVHN")
PRESET = find_preset("aisafety")
_NAMES: Mapping[tuple[str, str], str] = {
    ("fgsm", "linf"): "FGSM",
    ("pgd", "l1"): "PGD-l1",
    ("pgd", "l2"): "PGD-l2",
    ("pgd", "linf"): "PGD-linf",
    ("cw", "l2"): "C&W",
    ("nattack", "linf"): "NATTACK",
    ("spsa", "linf"): "SPSA",
    ("boundary", "l2"): "BA",
}
_STEPS = {"steps": 20, "binary_search_steps": 3, "samples": 32}


def attack_name(implementation: str, norm: str) -> str:
    """Return AISafety's name of an attack, such as "PGD-l2"."""
    return _NAMES[implementation.partition(":")[2], norm]


def setting_of(
    names: Sequence[str],
    table: str,
    *,
    images: int = 100,
    quick: int = 20,
    transferred: Sequence[str] = (),
    **changes: Any,
) -> Setting:
    """Return the setting of AISafety with some of the paper's attacks.

    Args:
        names: the paper's names of the attacks that run on each model.
        table: name of the published table. The models of this table and the undefended model are evaluated.
        images: number of images without options.
        quick: number of images with --quick.
        transferred: the paper's names of the attacks whose examples are made on the surrogate `INCEPTION`.
        **changes: fields of the config to change.
    """
    wanted = {False: names, True: transferred}
    attacks = [
        replace(choice, surrogate=INCEPTION if choice.surrogate else ())
        for choice in PRESET.config.attacks
        if attack_name(choice.attack, choice.norm or "") in wanted[bool(choice.surrogate)]
    ]
    config: Config = replace(PRESET.config, attacks=tuple(attacks), **changes)
    models = tuple(f"digits:{name}" for name, theirs in MODELS.items() if theirs in _printed(table))
    return Setting(
        config,
        default=Size(models, images, _STEPS, 1000),
        quick=Size(models, quick, {**_STEPS, "steps": 5}, 100),
        data="digits",
        papers=_rows_of(table),
        recognise=partial(recognise, table=table),
        surrogate=SURROGATE if transferred else "",
        aliases={**SAME, **{same: other for other, same in SAME.items()}},
    )


def compare_parts(
    table: str, setting: Setting, options: Options, compare: Callable[[SettingRun], dict[str, Any]], images: int = 20
) -> dict[str, Any]:
    """Compare a published table with two evaluations: of the ResNet-18 on CIFAR-10, and of small models on digits.

    If the user gives models or data, there is only one evaluation, with these models or data.

    Args:
        table: name of the published table.
        setting: setting of the evaluation on digits.
        options: options of the command.
        compare: function that computes the result from a finished evaluation.
        images: number of CIFAR-10 samples without options.

    Returns:
        The joined results.
    """
    results = []
    for part in _parts(table, setting, options, images):
        with run_setting(part, options) as run:
            results.append(compare(run))
    return join_results(results)


def _parts(table: str, setting: Setting, options: Options, images: int = 20) -> list[Setting]:
    cifar = _on_cifar(table, setting, images)
    if options.models is None and options.data is None:
        return [cifar, setting]
    small = options.data is not None or any(name.startswith("digits:") for name in options.models or ())
    if options.surrogate(setting.surrogate):
        return [setting if small else replace(cifar, config=setting.config)]
    if options.data not in (None, "digits"):  # the replacement of the surrogate has learnt digits alone
        setting = replace(setting, config=cifar.config)
    return [setting if options.data == "digits" or (options.models is not None and small) else cifar]


def _on_cifar(table: str, setting: Setting, images: int = 20) -> Setting:
    """Return the setting on samples of CIFAR-10, without transfer attacks, because no surrogate is available."""
    models = tuple(name for name, theirs in CIFAR.items() if theirs in _printed(table))
    attacks = tuple(choice for choice in setting.config.attacks if not choice.surrogate)
    default = replace(setting.default, models=models, images=images, queries=300)
    quick = replace(setting.quick, models=models, images=4, queries=40)
    return replace(
        setting, config=replace(setting.config, attacks=attacks), data="demo:cifar10", default=default, quick=quick
    )


def _printed(table: str) -> set[str]:
    names = {row["model"] for row in load_published(table)["rows"] if "model" in row}
    return {"VANILLA", *names, *(SAME[name] for name in names & SAME.keys())}


def _rows_of(table: str) -> tuple[str, ...]:
    printed = {row["model"] for row in load_published(table)["rows"] if "model" in row}
    order = ("VANILLA", *(name for name in ("PAT", "SAT", "NAT", "TRADES", "RAND") if name in printed))
    return (*order, *sorted(printed - {*order}))


def recognise(model: str, *, table: str) -> Counterpart:
    """Return the paper's model that has the same training or defence as an evaluated model."""
    name = CIFAR.get(model) or MODELS.get(model.rpartition(":")[2], "")
    other = next((other for other, same in SAME.items() if same == name and other in _printed(table)), name)
    return Counterpart(other)


def beside_both(
    run: SettingRun, table: str, symbol: str, model: str, row: str, ours: Estimate, **labels: Any
) -> Iterator[PaperLine]:
    """Yield a comparison of a computed number with each published row of the same model.

    The published tables have rows for CIFAR-10 and for SVHN. If the evaluated data are one of these data sets, only its
    rows are used. Otherwise the rows of both data sets are used.

    Args:
        run: the finished evaluation.
        table: name of the published table.
        symbol: symbol of the metric.
        model: name of the evaluated model.
        row: title of the comparison.
        ours: number computed by davylamp.
        **labels: further labels of the published row, such as `attack`.
    """
    have = [name for name in DATASETS if name in {each["dataset"] for each in load_published(table)["rows"]}]
    mine = [name for name in have if name == run.pairing.data_set]
    for dataset in mine or have:
        name = run.row_of(model)
        known = {"dataset": dataset, "model": name, **labels}
        published = find_value(table, symbol, **known) if name else None
        cell = {"model": model, "data_set": dataset, "labels": {**known, "model": name or model}}
        yield PaperLine(row, symbol, ours, published, f"{dataset} {name}" if name else "no row of the paper", **cell)


def missing_rows(table: str, present: Sequence[str]) -> dict[str, str]:
    """Return the reason why models and attacks of a published table are not reproduced, by their name.

    Args:
        table: name of the published table.
        present: the paper's names of the attacks that are reproduced.
    """
    rows = load_published(table)["rows"]
    models = {row["model"] for row in rows} - {*MODELS.values(), *SAME}
    attacks = {row["attack"] for row in rows if "attack" in row} - {*present, "CLEAN"}
    why = dict.fromkeys(sorted(models), "no small model is trained in this way")
    return why | dict.fromkeys(sorted(attacks), "not implemented in any library, or not in this setting")
