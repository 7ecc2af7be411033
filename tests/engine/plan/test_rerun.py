"""A folder's cells give the config that makes them again."""

import pytest

from davylamp.adapters import Classifier, ThreatModel
from davylamp.adapters.data.datasets import Data
from davylamp.engine import make_plan
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.plan.config_file import config_from, read_config, write_config
from davylamp.engine.plan.rerun import configs_of, transfer_of


@pytest.fixture
def data(digits):
    return Data(digits.inputs[:6], digits.labels[:6], [f"{place}.png" for place in range(6)])


def test_the_same_cells_again_key_by_key(digits, data, tmp_path):
    settings = {
        "attacks": [
            "fgsm",
            {"attack": "pgd", "norm": "linf", "epsilon": "8/255", "parameters": {"steps": 3}},
            {"attack": "best(foolbox:pgd)", "parameters": {"steps": 2}, "grid": {"steps": [2, 4]}},
            {"attack": "foolbox:deepfool", "norm": "l2"},
            {"attack": "pgd", "target": "least-likely", "norm": "linf", "epsilon": 0.1},
            {"attack": "torchattacks:pgd", "defaults": True, "norm": "linf", "epsilon": 0.1},
        ],
        "seeds": [0, 3],
        "max_queries": 30,
        "limit": 6,
        "measures": ["effect", "cost"],
        "shard_size": 4,
    }
    models = {"digits": Classifier(digits.module)}
    plan = make_plan(config_from(settings), models=models, data=data)
    (again,) = configs_of(plan.cells)
    (tmp_path / "again.toml").write_text(write_config(again), encoding="utf-8")
    second = make_plan(read_config(tmp_path / "again.toml"), models=models, data=data)
    assert {cell.key for cell in second.cells} == {cell.key for cell in plan.cells}
    assert len(plan.cells) > 12


@pytest.mark.parametrize(
    ("tested", "rule", "first", "counts"),
    [
        ("", "no", "", (0, 0)),
        ("ab ac ba bc ca cb", "full", "", (6, 6)),
        ("ab ac ba ca", "simple", "a", (4, 4)),
        ("ba bc ab cb", "simple", "b", (4, 4)),
        ("ab ac ba", "simple", "a", (3, 4)),
        ("ab ac ba bc ca", "full", "", (5, 6)),
    ],
)
def test_the_rule_of_a_folder_s_transfers_is_the_one_that_was_run(tested, rule, first, counts):
    subjects = {name: ModelOnData(name, f"weights {name}", "demo", "d", 4) for name in "abc"}
    cells = [AttackRun(subject, "foolbox:pgd", ThreatModel("linf", 0.1)) for subject in subjects.values()]
    transfers: dict[str, dict[str, object]] = {}
    for pair in tested.split():
        source = next(cell for cell in cells if cell.subject.model == pair[0])
        transfers.setdefault(source.key, {})[subjects[pair[1]].key] = None
    transfer = transfer_of(cells, transfers)
    assert (transfer.rule, transfer.first, (transfer.tested, transfer.asked)) == (rule, first, counts)
    (config,) = configs_of(cells, transfer=transfer.rule, first=transfer.first)
    assert config.transfer == rule
    assert config.models[0] == (first or "a")
