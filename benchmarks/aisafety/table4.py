"""AISafety, Table IV (Liu, Guo et al.): what the defences change on clean images.

Run: davylamp reproduce aisafety-table4 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ...engine.tables.defence_table import build_defence
from ..shared.reproduction import Options, print_result, run_setting
from .setting import beside_both, missing_rows, setting_of

__all__ = ["print_result", "run"]
_TABLE, _SYMBOLS = "aisafety_table4", ("CAV", "CRR", "CSR", "CCV", "COS")
_READINGS = {
    "CAV": "defended minus original, with its sign",
    "CCV": "mean absolute difference of the true class's probability where both are right",
    "COS": "divergence in nats, not its root, where both are right",
}


def run(**options: Any) -> dict[str, Any]:
    """Compare every other model with the first, the undefended one, on clean images, beside Table IV.

    Args:
        **options: those of `reproduction.Options`.
    """
    # A results folder has at least one attack; only its clean predictions are used.
    setting = setting_of(("FGSM",), images=397, quick=397, measures=())
    with run_setting(setting, Options(**options)) as own:
        original, *defended = own.plan.config.models
        lines = []
        for model in defended:
            clean = build_defence(own.folder, original, model, metrics=_SYMBOLS).rows[0]
            for symbol in _SYMBOLS:
                row = f"{model} against {original}"
                lines += beside_both(_TABLE, symbol, model, row, clean.metrics[symbol])
        return own.report(_TABLE, lines, readings=_READINGS, left_out=missing_rows(_TABLE, ()))
