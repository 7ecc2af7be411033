"""The tables of HikDeep-Sec (Zhang et al. 2023) that `davylamp reproduce` can run."""

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
