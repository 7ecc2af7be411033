"""The tables and figures of CANARY (Sun et al. 2023) that `davylamp reproduce` can run."""

from ..shared.paper_table import PaperTable

TABLES = (
    PaperTable(
        "canary-table3",
        "platforms: attacks, defences, metrics, models, with davylamp",
        "canary_table3",
        ".shared.platforms:compare_platforms",
        show=".shared.platforms:print_platforms",
        runs_models=False,
    ),
    PaperTable(
        "canary-table4",
        "effects of CANARY's attacks",
        "canary_table4",
        ".canary.setting:compare_attacks",
        {"symbols": ("MR", "AIAC", "ARTC", "ACAMC_A", "ACAMC_T", "OTR")},
    ),
    PaperTable(
        "canary-table5",
        "costs of CANARY's attacks",
        "canary_table5",
        ".canary.setting:compare_attacks",
        {"symbols": ("CTC", "QNC_F", "QNC_B", "APCR", "AED", "AMD", "FDL", "FDH", "ADMS", "ALMS")},
    ),
    PaperTable(
        "canary-table6",
        "transfer of four attacks between the models",
        "canary_table6",
        ".canary.table6:compare_transfer",
    ),
    PaperTable(
        "canary-table7",
        "the models on clean images",
        "canary_table7",
        ".canary.setting:compare_clean",
        {"symbols": ("CA", "CF", "CC")},
    ),
    PaperTable(
        "canary-table8",
        "the models under white-box and black-box attacks",
        "canary_table8",
        ".canary.table8:compare_models",
    ),
    PaperTable(
        "canary-table9",
        "IRT scores and ranks of 15 models, from Tables 7 and 8",
        "canary_table9",
        ".canary.table9:compare_scores",
        show=".canary.table9:print_result",
        lines=".canary.table9:score_lines",
        runs_models=False,
    ),
    PaperTable(
        "canary-defences",
        "CANARY's measures of defences: four trained, four that process the input",
        "canary_defences",
        ".canary.defences:compare_measures",
    ),
    PaperTable(
        "canary-figure6",
        "visibility of attacks on one model, ranked",
        "canary_figures",
        ".canary.figures:compare_visibility",
    ),
    PaperTable(
        "canary-figure7",
        "the three strongest and weakest attacks of each model",
        "canary_figures",
        ".canary.figures:compare_extremes",
    ),
)
