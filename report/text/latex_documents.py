"""LaTeX tables of command output: rankings, challenges, reproductions, saturation, certificates, detectors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.challenge.attempts import PARTS
from ...engine.statistics.bootstrap import Estimate
from ...intervals import proportion_interval
from ..citations.usage import split_data, split_model
from .latex import NORMS, Cell, LatexStyle, LatexTable, Tex, escape, radius_tex, write_latex
from .latex_sources import cited_name, cited_text, data_tex, label_word, made_now, model_tex, versions_sentence

_CLOPPER = r"95\,\% interval over images (Clopper--Pearson)"


def ranking_latex(ranking: Any, title: str, versions: Mapping[str, str], style: LatexStyle) -> str:
    """Return a LaTeX table of a ranking: score with interval, interval of the rank, probability of rank 1, tie groups.

    Args:
        ranking: result of `davylamp.rank`.
        title: caption that states the ranked subjects and the method.
        versions: versions of the programs that computed the results, by name. Empty for the ranking of a table of
            metrics.
        style: style of the table.
    """
    frame = ranking.to_frame()
    apart = dict(zip(ranking.subjects, ranking.apart[ranking.subjects.index(frame["subject"][0])], strict=True))
    beside = () if ranking.method == "mean" else ("mean",)  # it is the score
    rows: list[list[Cell]] = []
    for line in frame.to_dict("records"):
        score = Estimate(line["score"], line["low"], line["high"], 0)
        ranks = Tex(f"{line['rank_low']}--{line['rank_high']}")
        row = [int(line["rank"]), _subject(line["subject"], style), score, ranks, float(line["first"]), line["group"]]
        rows.append([*row, *(float(line[name]) for name in beside)])
    together = {(place, 1) for place, name in enumerate(frame["subject"]) if not apart[name]}
    latex = LatexTable(
        name="ranking",
        columns=("rank", "subject", ranking.label, "ranks", "P(first)", "group", *beside),
        rows=rows,
        caption=[f"{escape(title)}.", *_said_of_ranking(ranking)],
        interval=rf"95\,\% interval of the {ranking.score_name}",
        best=frozenset(together) if len(together) < len(rows) else frozenset(),
        rule="Bold: subjects that do not differ significantly from the first (95\\,\\%, all pairs).",
        made=versions_sentence(None, versions, style),
        decimals={2: 3 if ranking.method == "mean" else 2, 4: 2, 6: 3},
    )
    return write_latex(latex, style)


def challenge_latex(document: Mapping[str, Any], style: LatexStyle) -> str:
    """Return a LaTeX table of a challenge, with the accuracy under each attack. The caption contains the verdict."""
    norm = document["norm"]
    rows: list[list[Cell]] = []
    called = {document["original"]: "undefended", document["model"]: "defended"}
    for attempt in document["attempts"]:
        share, name = attempt["accuracy"], cited_name(attempt["attack"], style)
        head: list[Cell] = [
            PARTS[attempt["part"]],
            name,
            _made_on(attempt, called),
            radius_tex(norm, attempt["epsilon"]),
        ]
        rows.append([*head, None if share is None else _estimate(share), None if share is None else attempt["passes"]])
    worst = None if document["worst"]["value"] is None else _estimate(document["worst"])
    rows.append(["worst case", "", "", radius_tex(norm, document["epsilon"]), worst, None])
    model = cited_text(escape(document["model"]), split_model(document["model"]), style)
    rules = f"{NORMS.get(norm, escape(norm))} {radius_tex(norm, document['epsilon'])}"
    attacks = {str(attempt["attack"]).partition(":")[0] for attempt in document["attempts"]}
    latex = LatexTable(
        name="challenge",
        columns=("attacker", "attack", "made on", "radius", "accuracy", "passes"),
        rows=rows,
        caption=[f"{model} challenged, {rules}: {escape(document['sentence'].rstrip('.'))}."],
        interval=_CLOPPER,
        best=frozenset() if worst is None else frozenset({(len(rows) - 1, 4)}),
        rule="" if worst is None else "Bold: the worst case over all attacks.",
        made=made_now(attacks, style),
        decimals={5: 0},
    )
    return write_latex(latex, style)


def reproduction_latex(result: Mapping[str, Any], style: LatexStyle) -> str:
    """Return a LaTeX table that compares recomputed numbers with published numbers.

    If the reproduction has no such comparison, its records become a table without changes.
    """
    if "lines" not in result:
        parts = {"": result} if "rows" in result else {k: v for k, v in result.items() if isinstance(v, Mapping)}
        tables = [_records_latex(name, part["rows"], style) for name, part in parts.items() if part.get("rows")]
        return "\n".join(tables)
    rows: list[list[Cell]] = []
    for line in result["lines"]:
        ours, low, high = (math.nan if line[name] is None else float(line[name]) for name in ("ours", "low", "high"))
        published = None if line["published"] is None else f"{line['published']:.4g}"
        why = line["no_difference"]
        difference = why or ("--" if line["difference"] is None else f"{line['difference']:+.3f}")
        beside = Tex(f"${difference}$") if difference[:1] in "+-" and difference != "--" else Tex(escape(difference))
        rows.append(
            [line["row"], line["symbol"], Estimate(ours, low, high, line["n"]), published, beside, line["beside"]]
        )
    labels = f" ({escape(', '.join(result['labels']))})" if result["labels"] else ""
    data = cited_text(escape(result["data"]), split_data(result["data"]), style)
    latex = LatexTable(
        name=f"reproduce-{label_word(str(result['table']))}",
        columns=("row", "metric", "ours", "published", "difference", "published row"),
        rows=rows,
        caption=[
            f"{escape(result['source'])}: ours next to published{labels}.",
            *[escape(str(result[key])) for key in ("stand_ins",) if key in result],
            f"{result['images']} images of {data}; budget: {escape(result['budget'])}.",
        ],
        interval=r"95\,\% interval over images (Clopper--Pearson for shares, else expanded percentile bootstrap)",
        made=made_now(set(), style),
        decimals={2: 3},
    )
    return write_latex(latex, style)


def grid_latex(result: Mapping[str, Any], parts: Sequence[Any], side: str, style: LatexStyle) -> str:
    """Return LaTeX tables of a reproduction with the rows and columns of the published table, one for each part.

    Args:
        result: result of a reproduction, with "table", "source" and "unit".
        parts: parts of the published table. Each has a title, keys, columns, and rows of names and cells.
        side: numbers to print: "both" for "ours / published", "ours" or "published".
        style: style of the table.
    """
    what = {"both": "ours / published", "ours": "ours", "published": "published"}[side]
    tables = []
    for part in parts:
        caption = [f"{escape(result['source'])}{escape(f', {part.title}') if part.title else ''}: {what}."]
        caption += [escape(f"{result[key]}".rstrip(".") + ".") for key in ("stand_ins", "unit") if key in result]
        caption += [f"{result[key]} {key}." for key in ("images",) if key in result and side != "published"]
        rows: list[list[Cell]] = []
        for names, cells in part.rows:
            numbers = [cell.show(side) if side == "both" else getattr(cell, side) for cell in cells]
            rows.append([*names, *numbers])
        name = f"{label_word(str(result['table']))}-{label_word(part.title)}".rstrip("-")
        tables.append(
            write_latex(
                LatexTable(
                    name=f"reproduce-{name}",
                    columns=(*part.keys, *part.columns),
                    rows=rows,
                    caption=caption,
                    made="" if side == "published" else made_now(set(), style),
                ),
                style,
            )
        )
    return "\n".join(tables)


def saturation_latex(
    attack: str, model: str, data: str, norm: str, lines: Sequence[Mapping[str, Any]], style: LatexStyle
) -> str:
    """Return a LaTeX table of the fooling rate of each implementation at each radius.

    The saturation radius is in bold.
    """
    budgets = lines[0]["budgets"]
    rows = [
        [cited_name(line["implementation"], style), line["attacked"], *map(float, line["ratios"])] for line in lines
    ]
    best = {
        (place, 2 + next(i for i, budget in enumerate(line["budgets"]) if math.isclose(budget, line["epsilon"])))
        for place, line in enumerate(lines)
        if line["epsilon"] is not None
    }
    n = min(int(line["attacked"]) for line in lines)
    low, high = proportion_interval(n // 2, n)
    nothing = sum(sum(line.get("violations", ())) for line in lines)
    latex = LatexTable(
        name=f"saturation-{label_word(attack)}",
        columns=("implementation", Tex("$n$"), *(radius_tex(norm, budget) for budget in budgets)),
        rows=rows,
        caption=[
            f"{escape(attack)} on {model_tex(model, style)}, {data_tex(data, style)}: proportion of $n$ images "
            f"fooled at each radius of {NORMS.get(norm, escape(norm))}.",
            rf"With {n} images the 95\,\% interval (Clopper--Pearson) of a rate of {n // 2 / n:.2f} is "
            f"{low:.2f} to {high:.2f}.",
            *[f"{nothing} results are invalid and count as not fooled."] * bool(nothing),
        ],
        best=frozenset(best),
        rule="Bold: the smallest radius whose rate is within the threshold of the highest; not a significance test.",
        made=made_now({str(line["implementation"]).partition(":")[0] for line in lines}, style),
        decimals=dict.fromkeys(range(2, 2 + len(budgets)), 3),
    )
    return write_latex(latex, style)


def certified_latex(settings: Mapping[str, Any], lines: Sequence[Any], style: LatexStyle) -> str:
    """Return a LaTeX table of a model's certified accuracy at each radius."""
    model, data = model_tex(settings["model"], style), data_tex(settings["data"], style)
    noise = f"noise $\\sigma = {settings['sigma']:g}$, {settings['first']} + {settings['draws']} samples"
    latex = LatexTable(
        name="certified",
        columns=(Tex(r"$\ell_2$ radius"), "accuracy"),
        rows=[
            [f"{line['radius']:g}", Estimate(*(line[name] for name in ("accuracy", "low", "high", "n")))]
            for line in lines
        ],
        caption=[
            f"Certified accuracy of {model} on {data} by randomized smoothing: {noise}, each certificate wrong with a "
            f"probability of at most {settings['alpha']:g}.",
        ],
        interval=_CLOPPER,
        made=made_now(set(), style),
    )
    return write_latex(latex, style)


def detections_latex(rows: Sequence[Any], style: LatexStyle) -> str:
    """Return a LaTeX table of detectors of adversarial images.

    The columns are the AUC and, at each false-positive rate, the rates of detections, false alarms and misses.
    """
    cells: list[list[Cell]] = []
    for row in rows:
        head: list[Cell] = [row.name, row.cell.subject.name, cited_name(row.cell.title, style)]
        area = Estimate(row.area.value, row.area.low, row.area.high, row.fooled)
        for at in row.rates:
            shares = [Estimate(s.value, s.low, s.high, s.n) for s in (at.detected, at.false_alarms, at.missed)]
            cells.append([*head, area, f"{at.rate:g}", *shares])
    latex = LatexTable(
        name="detectors",
        columns=("detector", "model", "attack", "AUC", "rate", "detected", "false alarms", "fooled, not detected"),
        rows=cells,
        caption=[
            "Detectors of adversarial images; rate: false-positive rate on the calibration images.",
            "The attacks did not know the detector.",
        ],
        interval=r"95\,\% interval over images (Clopper--Pearson for shares)",
        made=made_now({row.cell.row.library for row in rows}, style),
    )
    return write_latex(latex, style)


def _made_on(attempt: Mapping[str, Any], called: Mapping[str, str]) -> str:
    name = str(attempt["made_on"])
    return called.get(name, name)


def _records_latex(name: str, records: Sequence[Mapping[str, Any]], style: LatexStyle) -> str:
    columns = list(records[0])
    rows = [[record.get(column) for column in columns] for record in records]
    title = f"Ours next to published: {escape(name)}." if name else "Ours next to published."
    heads = [column.replace("_", " ") for column in columns]
    latex = LatexTable(f"reproduce-{label_word(name) or 'rows'}", heads, rows, [title], made=made_now(set(), style))
    return write_latex(latex, style)


def _said_of_ranking(ranking: Any) -> list[str]:
    letters = "subjects that share a letter do not differ significantly (95\\,\\%, all pairs)"
    lines = [f"Ranks: their 95\\,\\% interval; {letters}."]
    quality = ranking.diagnostics
    if quality is not None and quality.problem:
        lines.append(f"{escape(quality.problem)}.")
    return lines


def _subject(name: str, style: LatexStyle) -> Tex:
    attack = cited_name(name, style)
    return attack if attack != escape(name) else Tex(model_tex(name, style))


def _estimate(share: Mapping[str, Any]) -> Estimate:
    return Estimate(float(share["value"]), float(share["low"]), float(share["high"]), int(share["n"]))
