"""Figure of the attacks that fool each model most and least often (CANARY's Figure 7)."""

import math
from typing import Any

from ...engine.tables.table import Table
from ...errors import Unsupported
from .drawn_curves import curve_name

_CELL, _BESIDE = 0.19, 0.35  # inches of a row, and of what is above and below
_BEST, _WORST = "\N{BLACK STAR}", "\N{WHITE STAR}"


def draw_extremes(make: type, width: float, table: Table, *, count: int = 3) -> Any:
    """Draw a matrix of models and attacks that marks the attacks that fool each model most and least often.

    Rows are models, and columns are numbered attacks. Filled stars with ranks mark the attacks that fool the model most
    often. Empty stars with ranks mark the attacks that fool the model least often. "-" means that the attack was not
    run on the model. Attacks with equal rates share the better rank, so more than `count` attacks may be marked. If
    there are few attacks, fewer attacks are marked, so that no attack has both kinds of stars.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        table: result of `build_table` by pairs, with the metric MR.
        count: number of attacks to mark at each extreme.

    Raises:
        Unsupported: If no model was attacked by two attacks.
    """
    models = list(dict.fromkeys(str(row.labels["model"]) for row in table.rows))
    attacks = list(dict.fromkeys(_name(row.labels) for row in table.rows))
    rates = {(str(row.labels["model"]), _name(row.labels)): row.metrics["MR"].value for row in table.rows}
    rates = {key: rate for key, rate in rates.items() if not math.isnan(rate)}
    marks = {
        model: mark_extremes({a: rates[model, a] for a in attacks if (model, a) in rates}, count) for model in models
    }
    if not any(marks.values()):
        raise Unsupported("the figure needs a model that was attacked by at least two attacks")
    height = _BESIDE + _CELL * (len(models) + len(attacks))
    figure = make(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    for down, model in enumerate(models):
        for across, attack in enumerate(attacks):
            text = marks[model].get(attack, "" if (model, attack) in rates else "-")
            axes.text(across, down, text, ha="center", va="center")
    axes.set_xlim(-0.5, len(attacks) - 0.5)
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.set_xticks(range(len(attacks)), [str(number) for number in range(1, len(attacks) + 1)])
    axes.set_yticks(range(len(models)), models)
    axes.tick_params(length=0)
    names = "\n".join(f"{number}  {attack}" for number, attack in enumerate(attacks, 1))
    axes.set_xlabel(f"{names}\n{_BEST} fools most often, {_WORST} least often, with its rank", loc="left")
    return figure


def mark_extremes(rates: dict[str, float], count: int) -> dict[str, str]:
    """Return the marks of the attacks with the highest and the lowest fooling rates on a model.

    Args:
        rates: fooling rate of each attack, by name.
        count: number of attacks to mark at each extreme.

    Returns:
        Mark of each marked attack, by name. A mark is a star and a rank. Empty if there are fewer than two attacks.
    """
    few = min(count, len(rates) // 2)
    best = {name: 1 + sum(other > rate for other in rates.values()) for name, rate in rates.items()}
    worst = {name: 1 + sum(other < rate for other in rates.values()) for name, rate in rates.items()}
    marks = {name: f"{_WORST}{rank}" for name, rank in worst.items() if rank <= few and best[name] > few}
    return marks | {name: f"{_BEST}{rank}" for name, rank in best.items() if rank <= few and worst[name] > few}


def _name(labels: Any) -> str:
    return f"{curve_name(labels)}, {labels['norm']}"
