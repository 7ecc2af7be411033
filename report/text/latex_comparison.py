"""LaTeX tables of a library comparison: results of each library, and verdicts on the pairs."""

import math

from ...engine.comparison.compare import Comparison
from ...engine.statistics.bootstrap import Estimate
from .latex import NORMS, Cell, LatexStyle, LatexTable, Tex, escape, highest, threat_tex, write_latex
from .latex_sources import cited_name, data_tex, label_word, made_now, model_tex

_CLOPPER = r"95\,\% interval over images (Clopper--Pearson)"
_NO_TEST = "not a significance test"


def comparison_latex(comparison: Comparison, style: LatexStyle) -> str:
    """Return a comparison of libraries as two LaTeX tables: results of implementations, and verdicts on pairs."""
    done, rate = [row for row in comparison.rows if row.metrics], comparison.success_metric
    rows: list[list[Cell]] = []
    for row in comparison.rows:
        numbers = row.metrics
        name = cited_name(row.implementation.name, style)
        if not numbers:
            rows.append([name, None, None, None, None, None, None, None])
            continue
        low, high = numbers[f"{rate}_interval"]
        share = Estimate(numbers[rate], low, high, numbers["images"])
        costs = [float(numbers[each]) for each in ("forwards_median", "backwards_median", "seconds_per_image")]
        norm = comparison.threat_model.norm
        distance = float(numbers.get(f"{norm}_median", math.nan)) if norm in NORMS else math.nan
        rows.append([name, share, float(numbers[f"{rate}_8bit"]), distance, *costs, int(numbers["violations"])])
    norm = NORMS.get(comparison.threat_model.norm, "distance")
    best = highest([math.nan if r[1] is None else r[1].value for r in rows if isinstance(r[1], Estimate | None)], 3)
    latex = LatexTable(
        name=f"compare-{label_word(comparison.attack)}",
        columns=(
            "implementation",
            rate,
            "8-bit",
            Tex(f"{norm} median"),
            "forwards",
            "backwards",
            "s/image",
            "violations",
        ),
        rows=rows,
        caption=[
            _about_comparison(comparison, style),
            f"{rate}: proportion of attacked images {'fooled' if rate == 'MR' else 'classified as the target'}; "
            "median distances are over the fooled images, median passes over all attacked images.",
        ],
        interval=_CLOPPER,
        best=frozenset((place, 1) for place in best),
        rule=f"Bold: highest point estimate; {_NO_TEST}.",
        made=made_now({row.implementation.library for row in comparison.rows}, style),
    )
    tables = [write_latex(latex, style)]
    return "\n".join([*tables, *([_pairs_latex(comparison, style)] if comparison.pairs and done else [])])


def _pairs_latex(comparison: Comparison, style: LatexStyle) -> str:
    rows: list[list[Cell]] = []
    for pair in comparison.pairs:
        judged = pair.judgement
        difference = Estimate(judged.difference.value, judged.difference.low, judged.difference.high, judged.images)
        rows.append([pair.a, pair.b, judged.text, difference, judged.p_success, judged.p_distance])
    levels = dict.fromkeys(pair.judgement.correction for pair in comparison.pairs if pair.judgement.images)
    power = dict.fromkeys(pair.judgement.power for pair in comparison.pairs if pair.judgement.power)
    latex = LatexTable(
        name=f"verdicts-{label_word(comparison.attack)}",
        columns=("a", "b", "verdict", Tex("$a - b$"), Tex("$p$ success"), Tex("$p$ distance")),
        rows=rows,
        caption=[
            f"{escape(comparison.attack)}: verdicts from paired tests (exact McNemar test on success, Wilcoxon's test "
            f"on distances of minimum-norm attacks; $p$ uncorrected, significant below {' or '.join(levels)}).",
            *(f"{escape(line[:1].upper() + line[1:])}." for line in power),
        ],
        interval=r"interval of the paired difference of success, at the same level as the test that gives $p$",
        made=made_now({row.implementation.library for row in comparison.rows}, style),
        decimals={3: 3, 4: 3, 5: 3},
    )
    return write_latex(latex, style)


def _about_comparison(comparison: Comparison, style: LatexStyle) -> str:
    where = threat_tex(comparison.threat_model)
    chosen = ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in comparison.parameters.items()
    )
    said = escape(chosen) or "each library's own parameters"
    name = cited_name(comparison.attack, style)
    on = f"{model_tex(comparison.model, style)}, {data_tex(comparison.data, style)}"
    return f"{name} on {on}; {where}; {said}; seed {comparison.seed}."
