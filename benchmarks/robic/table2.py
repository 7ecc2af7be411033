"""RoBIC, Table 2 (Maho et al. 2021): accuracy, white-box and black-box half-distortion of models."""

import math
from collections.abc import Mapping, Sequence
from statistics import correlation
from typing import Any

from ...engine.statistics.bootstrap import Estimate
from ..shared.counterpart import Counterpart
from ..shared.paper_numbers import find_beside, load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, SettingRun, Size, build_rows, run_setting
from .setting import READINGS, choose, half_distortions

_SYMBOLS: Mapping[str, str] = {"davylamp:bp": "D_half_white", "davylamp:surfree": "D_half_black"}
# Networks of Table 2; timm's of the same number of parameters. The weights of 2021 are torchvision's V1.
_NAMES: Mapping[str, str] = {
    "torchvision:alexnet": "AlexNet",
    "timm:cspresnext50": "CSPResNeXt50",
    "timm:dpn68b": "DualPathNetworks 68b",
    "timm:mixnet_l": "MixNet Large",
    "timm:mobilenetv2_120d": "MobileNetV2",
    "timm:rexnet_200": "ReXNet 200",
    "timm:regnety_032": "RegNetY 032",
    "timm:seresnext50_32x4d": "SEResNeXt50 32x4d",
    "torchvision:vgg16": "VGG16",
    "torchvision:vgg16:IMAGENET1K_V1": "VGG16",
    "timm:tf_efficientnet_b0_ap": "EfficientNet AdvProp",
    "timm:tf_efficientnet_b0.ap_in1k": "EfficientNet AdvProp",
    "timm:efficientnet_es": "EfficientNet EdgeTPU Small",
    "timm:tf_efficientnet_b0_ns": "EfficientNet NoisyStudent",
    "timm:tf_efficientnet_b0.ns_jft_in1k": "EfficientNet NoisyStudent",
    "timm:efficientnet_b0": "EfficientNet",
    "torchvision:resnet50:IMAGENET1K_V1": "ResNet50 (torchvision)",
}
# Part of a name -> the row of the same architecture, most specific first: other weights, or another library.
_ARCHITECTURES: Mapping[str, str] = {
    "engstrom2019": "ResNet50 AdvTrain",
    "salman2020do_r50": "ResNet50 AdvTrain",
    "advprop": "EfficientNet AdvProp",
    "edgetpu": "EfficientNet EdgeTPU Small",
    "efficientnet_es": "EfficientNet EdgeTPU Small",
    "noisystudent": "EfficientNet NoisyStudent",
    "efficientnet": "EfficientNet",
    "alexnet": "AlexNet",
    "cspresnext50": "CSPResNeXt50",
    "dpn68b": "DualPathNetworks 68b",
    "mixnet_l": "MixNet Large",
    "mobilenet": "MobileNetV2",
    "rexnet_200": "ReXNet 200",
    "regnety_032": "RegNetY 032",
    "seresnext50": "SEResNeXt50 32x4d",
    "vgg16": "VGG16",
    "timm:resnet50": "ResNet50 (timm)",
    "resnet50": "ResNet50 (torchvision)",
}


def recognise(model: str) -> Counterpart:
    """Return the model of Table 2 with the architecture of an evaluated model, and whether it is the same model."""
    plain = model.removesuffix(":DEFAULT")
    if plain in _NAMES:
        return Counterpart(_NAMES[plain], same=True)
    return Counterpart(next((paper for part, paper in _ARCHITECTURES.items() if part in model.lower()), ""))


_SETTING = Setting(
    choose(tuple(_SYMBOLS)),
    default=Size(("demo:*",), 4, {"steps": 10, "max_queries": 300}),
    quick=Size(("demo:efficientnet-lite0",), 3, {"steps": 3, "max_queries": 60}),
    data_set="ImageNet",
    papers=tuple(row["model"] for row in load_rows("robic_table2")),
    recognise=recognise,
)
_ATTACKS = "white-box: BP with RoBIC's step size, black-box: SurFree"


def compare_models(table: str, options: Options) -> dict[str, Any]:
    """Measure accuracy and half-distortions of the models, and compare them with Table 2.

    Args:
        table: "robic_table2".
        options: options of the command.
    """
    with run_setting(_SETTING, options) as run:
        clean, notes = build_rows(run.folder, ["CA"], "models")
        known = {row.labels["model"]: row.metrics["CA"] for row in clean.rows}
        lines = [_line(run, table, model, "CA", estimate) for model, estimate in known.items()]
        lines += [
            _line(run, table, cell.subject.model, _SYMBOLS[cell.attack], estimate)
            for cell, estimate in half_distortions(run)
        ]
        lines.sort(key=lambda line: line.row)
        readings = {**READINGS, "D_half_white, D_half_black": _ATTACKS}
        return run.report(table, lines, readings=readings, left_out={}, notes=notes)


def compare_knowledge(published: str, options: Options) -> dict[str, Any]:
    """Reproduce Figure 3: black-box against white-box half-distortion of the models, and their correlation.

    Table 2 has the numbers of the points in the figure.

    Args:
        published: "robic_figures".
        options: options of the command.
    """
    table = "robic_table2"
    with run_setting(_SETTING, options) as run:
        lines = [
            _line(run, table, cell.subject.model, _SYMBOLS[cell.attack], estimate)
            for cell, estimate in half_distortions(run)
        ]
        values = {(line.symbol, line.model): line.ours.value for line in lines}
        halves = {each: [values.get((each, model), math.nan) for model in run.models] for each in _SYMBOLS.values()}
        theirs = [[row[symbol] for row in load_rows(table)] for symbol in halves]
        mine = _correlation(*halves.values())
        count = sum(all(map(math.isfinite, pair)) for pair in zip(*halves.values(), strict=True))
        lines.append(
            PaperLine("all models", "r", Estimate(mine, math.nan, math.nan, count), _correlation(*theirs), "Table 2")
        )
        lines.sort(key=lambda line: (line.model is None, line.row))
        stated = [row["statement"] for row in load_rows(published) if row["figure"] == "3"]
        notes = [f"the paper's text: {statement}" for statement in stated]
        readings = {**READINGS, "D_half_white, D_half_black": _ATTACKS, "r": "Pearson's, over the models; n: models"}
        return run.report(published, lines, readings=readings, left_out={}, notes=notes)


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Pearson's correlation of pairs of values. Pairs with NaN are ignored. NaN for fewer than three pairs."""
    pairs = [pair for pair in zip(first, second, strict=True) if all(map(math.isfinite, pair))]
    if len(pairs) < 3 or any(len(set(side)) < 2 for side in zip(*pairs, strict=True)):
        return math.nan
    return correlation(*zip(*pairs, strict=True))


def _line(run: SettingRun, table: str, model: str, symbol: str, estimate: Estimate) -> PaperLine:
    beside = find_beside(table, symbol, **run.labels_of(model))
    return PaperLine(model, symbol, estimate, *beside, model=model, labels={"model": model, **run.labels_of(model)})
