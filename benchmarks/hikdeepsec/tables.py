"""List of HikDeep-Sec's tables (Zhang et al. 2023)."""

from ..shared.paper_table import PaperTable

_COMPARE = ".hikdeepsec.setting:compare_defence"

TABLES = (
    PaperTable(
        "hikdeepsec-table1",
        "a defended model on adversarial examples, CIFAR-10",
        "hikdeepsec_table1",
        _COMPARE,
        {"dataset": "CIFAR-10"},
    ),
    PaperTable(
        "hikdeepsec-table2",
        "a defended model on adversarial examples, SVHN",
        "hikdeepsec_table2",
        _COMPARE,
        {"dataset": "SVHN"},
    ),
)
