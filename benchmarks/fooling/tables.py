"""The table and figures of "Fooling beyond flipping the label" (Mopuri et al. 2020) for `davylamp reproduce`."""

from ..shared.paper_table import PaperTable

TABLES = (
    PaperTable(
        "fooling-table1",
        "area under the curves of FR@K",
        "fooling_table1",
        ".fooling.setting:compare_areas",
    ),
    PaperTable(
        "fooling-figures",
        "FR@K, QI-Wup and QI-Vis",
        "fooling_figures",
        ".fooling.figures:compare_curves",
    ),
)
