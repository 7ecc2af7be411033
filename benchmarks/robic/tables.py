"""The tables and figures of RoBIC (Maho et al. 2021) that `davylamp reproduce` can run."""

from ..shared.paper_table import PaperTable

TABLES = (
    PaperTable(
        "robic-figure1",
        "half-distortion of black-box attacks, by number of queries",
        "robic_figures",
        ".robic.setting:compare_budgets",
        {
            "figure": "1",
            "attacks": ("davylamp:surfree", "davylamp:rays", "art:geoda", "davylamp:qeba"),
            "parameter": "max_queries",
            "budgets": {"quick": (15, 60), "default": (100, 300, 600), "full": (500, 1000, 2000, 3000, 5000)},
            "images": 3,
        },
    ),
    PaperTable(
        "robic-figure2",
        "half-distortion of white-box attacks against iterations",
        "robic_figures",
        ".robic.setting:compare_budgets",
        {
            "figure": "2",
            "attacks": ("best(foolbox:pgd)", "foolbox:cw", "davylamp:bp"),
            "parameter": "steps",
            "budgets": {"quick": (2, 4), "default": (5, 10, 20), "full": (10, 20, 50, 100, 200)},
            "images": 8,
        },
    ),
    PaperTable(
        "robic-figures-ranking",
        "ranking of attacks by half-distortion at the paper's budgets",
        "robic_figures",
        ".robic.ranking:rank_attacks",
    ),
    PaperTable(
        "robic-table1",
        "seconds per image of RoBIC, RobustBench and ADBD",
        "robic_table1",
        ".robic.runtimes:compare_runtimes",
    ),
    PaperTable(
        "robic-table2",
        "accuracy and half-distortion of models",
        "robic_table2",
        ".robic.table2:compare_models",
    ),
    PaperTable(
        "robic-figure3",
        "black-box against white-box half-distortion of models",
        "robic_figures",
        ".robic.table2:compare_knowledge",
    ),
)
