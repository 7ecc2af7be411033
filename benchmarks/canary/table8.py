"""CANARY, Table 8 (Sun et al. 2023): metrics of models, averaged over white-box attacks and over black-box attacks.

The paper does not state over which attacks it averages. These attacks were inferred from the means of Tables 4 and 5
(see `davylamp reproduce checks`). The white-box attacks include the transferable attacks at 1/255 and AdvGan, but not
SSAH. The black-box attacks do not include AdvGan.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...engine.statistics.bootstrap import Estimate
from ...engine.store.results import RunResult, read_outcomes
from ...engine.tables.estimates import RunReplicates, estimate_row
from ...engine.tables.symbols import drop_absent
from ..shared.paper_numbers import find_beside
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import run_setting
from .checks import TABLE8_BLACK, TABLE8_WHITE
from .setting import PUBLISHED_FORMS_OF, SETTING, SYMBOLS_OF_FORMS, readings_of, row_of, scale

_SYMBOLS = ("MR", "AIAC", "ARTC", "ACAMC_A", "ACAMC_T", "APCR", "AED", "AMD", "FDL", "FDH", "ADMS", "ALMS")
_KINDS = {"white": TABLE8_WHITE, "black": TABLE8_BLACK}


def compare_models(table: str, options: Options) -> dict[str, Any]:
    """Measure the models under CANARY's attacks, and compare them with Table 8.

    Args:
        table: "canary_table8".
        options: options of the command.
    """
    with run_setting(SETTING, options) as run:
        lines = [
            PaperLine(
                f"{kind} {model}",
                symbol,
                scale(symbol, estimate),
                *find_beside(table, symbol, **run.labels_of(model), attack_type=kind),
                model=model,
                labels={"model": model, **run.labels_of(model), "attack_type": kind},
            )
            for kind, model, symbol, estimate in mean_over_attacks(run.folder)
        ]
        return run.report(table, lines, readings=readings_of(_SYMBOLS), left_out={})


def mean_over_attacks(folder: Path) -> Iterator[tuple[str, str, str, Estimate]]:
    """Yield the mean of each metric over the attacks of one kind on one model. All attacks have equal weight.

    Args:
        folder: results folder.

    Yields:
        Kind of attacks ("white" or "black"), name of the model, symbol of the metric, and the mean.
    """
    outcomes = read_outcomes(folder)
    symbols = drop_absent([PUBLISHED_FORMS_OF.get(symbol, symbol) for symbol in _SYMBOLS], outcomes, explicit=False)
    draws = RunReplicates(1000, 0)
    draws.prepare(outcomes, symbols)
    for kind, attacks in _KINDS.items():
        for model in dict.fromkeys(outcome.cell.subject.model for outcome in outcomes.done):
            parts = [[each] for each in outcomes.done if each.cell.subject.model == model and _in(each, attacks)]
            for symbol, estimate in estimate_row(parts, outcomes, symbols, draws).items():
                yield kind, model, SYMBOLS_OF_FORMS.get(symbol, symbol), estimate


def _in(outcome: RunResult, attacks: tuple[tuple[str, str], ...]) -> bool:
    labels = row_of({"implementation": outcome.cell.attack, "epsilon": outcome.cell.threat_model.epsilon})
    return (labels["attack"], labels.get("epsilon", "")) in attacks
