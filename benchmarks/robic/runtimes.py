"""RoBIC, Table 1 (Maho et al. 2021): time per image of the attacks of RoBIC, RobustBench and ADBD on one model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...engine import AttackChoice, Config
from ...engine.plan.presets import find_preset
from ...engine.statistics.bootstrap import Estimate, bootstrap_means, interval, resample
from ...engine.store.results import read_outcomes
from ..shared.counterpart import Counterpart
from ..shared.paper_numbers import find_value, load_rows
from ..shared.paper_result import PaperLine, join_results
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, Size, run_setting
from .setting import choose

_RADIUS = 4 / 255  # RobustBench's on ImageNet, linf
_BENCHMARKS: Mapping[str, Config] = {
    "RoBIC": replace(choose(("davylamp:bp", "davylamp:surfree")), preset=""),
    "RobustBench": replace(
        find_preset("autoattack").config,
        attacks=(AttackChoice("torchattacks:autoattack@fixed", "linf", _RADIUS),),
        preset="",
    ),
    "ADBD": Config(attacks=(AttackChoice("davylamp:rays", "linf", parameters={"max_queries": 10_000}),), limit=1000),
}
# AutoAttack needs no limit: it ends an image as soon as it is fooled.
_LIMITS = {"RoBIC": {"steps": 10, "max_queries": 300}, "ADBD": {"max_queries": 300}}
_QUICK = {"RoBIC": {"steps": 2}}
_WHY = "other machine"


def recognise(model: str) -> Counterpart:
    """Return the paper's ResNet-50 if an evaluated model is a ResNet-50; otherwise no model of the paper."""
    return Counterpart("ResNet50" if "resnet50" in model.lower() else "")


def compare_runtimes(published: str, options: Options) -> dict[str, Any]:
    """Measure the time per image of the attacks of each benchmark, in seconds.

    The result has no differences from the published times, because these were measured on another machine.

    Args:
        published: "robic_table1".
        options: options of the command.
    """
    results = []
    for benchmark, config in _BENCHMARKS.items():
        setting = Setting(
            config,
            default=Size(("demo:efficientnet-lite0",), 2, _LIMITS.get(benchmark, {})),
            quick=Size(("demo:efficientnet-lite0",), 1, _QUICK.get(benchmark, {}), queries=40),
            data_set="ImageNet",
            papers=("ResNet50",),
            recognise=recognise,
        )
        with run_setting(setting, options) as run:
            theirs = find_value(published, "seconds", benchmark=benchmark)
            lines = [
                PaperLine(
                    f"{model}, {benchmark}", "seconds", _seconds(run.folder, model), theirs, benchmark, _WHY,
                    model=model, labels={"benchmark": benchmark},
                )
                for model in run.models
            ]  # fmt: skip
            others = [row["benchmark"] for row in load_rows(published) if row["benchmark"] not in _BENCHMARKS]
            left_out = dict.fromkeys(others, "no preset has its attacks")
            reading = {"seconds": "seconds per image of all attacks of a benchmark together, on this machine"}
            results.append(run.report(published, lines, readings=reading, left_out=left_out))
    return {**join_results(results), "images": results[0]["images"]}  # all are run on the same ones


def _seconds(folder: Path, model: str) -> Estimate:
    runs = [each.columns["seconds"] for each in read_outcomes(folder).done if each.cell.subject.model == model]
    total = sum(runs[1:], runs[0])
    (drawn,) = bootstrap_means(resample(len(total), 1000, 0), total[:, None])
    return interval(drawn.ratio, drawn.n)
