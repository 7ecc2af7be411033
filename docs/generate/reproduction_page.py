"""Renders the list of the five papers' tables and figures that davylamp recomputes."""

from page_parts import table

from davylamp.benchmarks.reproductions import PAPERS, list_tables
from davylamp.benchmarks.shared.paper_numbers import load_rows

TITLES = {
    "canary": "CANARY (Sun et al. 2023)",
    "aisafety": "AISafety (Liu et al. 2021)",
    "fooling": "Fooling beyond flipping the label",
    "robic": "RoBIC (Maho et al. 2021)",
    "hikdeepsec": "HikDeep-Sec",
}


def render() -> str:
    """Render the page."""
    text = "# Reproductions\n\nWhat `davylamp reproduce` computes again, and from what. "
    text += "How it is labelled and measured: [Reproduce a published table](../reproduce.md).\n"
    tables = list_tables()
    for paper in PAPERS:
        rows = []
        for name, each in tables.items():
            if name.startswith(f"{paper}-"):
                runs = "models, attacked" if each.runs_models else "the paper's own numbers"
                rows.append([f"`davylamp reproduce {name}`", each.title, runs, _numbers(each.published)])
        text += f"\n## {TITLES[paper]}\n\n" + table(["command", "what", "computed from", "published rows"], rows)
    return text


def _numbers(published: object) -> str:
    if not isinstance(published, str) or not published or published.endswith(".json"):
        return ""
    return str(len(load_rows(published)))
