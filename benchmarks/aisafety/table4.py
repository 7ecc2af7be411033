"""AISafety, Table IV (Liu, Guo et al.): effect of defences on the predictions for clean images."""

from typing import Any

from ...engine.tables.defence_table import build_defence
from ..shared.paper_table import Options
from ..shared.reproduction import SettingRun
from .setting import beside_both, compare_parts, missing_rows, setting_of

_SYMBOLS = ("CAV", "CRR", "CSR", "CCV", "COS")
_READINGS = {
    "CAV": "defended minus original, with its sign",
    "CCV": "mean absolute difference of the true class's probability if both are correct",
    "COS": "divergence in nats, not its root, if both are correct",
}


def compare_defences(table: str, options: Options) -> dict[str, Any]:
    """Measure how each defended model differs from the undefended model on clean images, and compare with Table IV.

    Args:
        table: "aisafety_table4".
        options: options of the command.
    """

    def compare(run: SettingRun) -> dict[str, Any]:
        models = run.plan.config.models
        original = next((name for name in models if run.row_of(name) == "VANILLA"), models[0])
        lines = []
        for model in (name for name in models if name != original):
            clean = build_defence(run.folder, original, model, metrics=_SYMBOLS).rows[0]
            for symbol in _SYMBOLS:
                row = f"{model} against {original}"
                made = beside_both(run, table, symbol, model, row, clean.metrics[symbol])
                lines += [line._replace(why=run.pairing.why_other(original, "VANILLA", line.data_set)) for line in made]
        return run.report(table, lines, readings=_READINGS, left_out=missing_rows(table, ()))

    # A results folder needs at least one attack, but only clean predictions are used.
    setting = setting_of(("FGSM",), table, images=397, quick=397, measures=())
    return compare_parts(table, setting, options, compare)
