"""RoBIC, Table 2 (Maho et al. 2021): accuracy, white-box and black-box half-distortion of models."""

from collections.abc import Mapping
from typing import Any

from ..shared.paper_numbers import find_beside
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Setting, Size, build_rows, run_setting
from .setting import READINGS, choose, half_distortions

_SYMBOLS: Mapping[str, str] = {"davylamp:bp": "D_half_white", "davylamp:surfree": "D_half_black"}
_SETTING = Setting(
    choose(tuple(_SYMBOLS)),
    default=Size(("demo:*",), 4, {"steps": 10, "max_queries": 300}),
    quick=Size(("demo:efficientnet-lite0",), 3, {"steps": 3, "max_queries": 60}),
    data_set="ImageNet",
)
_FAMILIES = {
    "efficientnet": "EfficientNet",
    "alexnet": "AlexNet",
    "vgg16": "VGG16",
    "mobilenet_v2": "MobileNetV2",
    "resnet50": "ResNet50 (torchvision)",
}
_ATTACKS = "white-box: BP with RoBIC's step size, black-box: SurFree"


def compare_models(table: str, options: Options) -> dict[str, Any]:
    """Measure the models and compare with Table 2.

    Args:
        table: "robic_table2".
        options: options of the command.
    """
    with run_setting(_SETTING, options) as run:
        clean, notes = build_rows(run.folder, ["CA"], "models")
        known = {row.labels["model"]: row.metrics["CA"] for row in clean.rows}
        lines = [PaperLine(model, "CA", estimate, *_beside(table, model, "CA")) for model, estimate in known.items()]
        for cell, estimate in half_distortions(run):
            symbol, model = _SYMBOLS[cell.attack], cell.subject.model
            lines.append(PaperLine(model, symbol, estimate, *_beside(table, model, symbol)))
        lines.sort(key=lambda line: line.row)
        readings = {**READINGS, "D_half_white, D_half_black": _ATTACKS}
        return run.report(table, lines, readings=readings, left_out={}, notes=notes)


def _beside(table: str, model: str, symbol: str) -> tuple[float | None, str]:
    """Return the published number of the same architecture, otherwise the mean over the paper's models."""
    family = next((paper for part, paper in _FAMILIES.items() if part in model.lower()), "")
    return find_beside(table, symbol, **({"model": family} if family else {}))
