"""How an evaluation is dealt out to parts: every piece once, evenly by cost, the same on every machine."""

import random

import pytest

from davylamp.adapters import ThreatModel
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.plan.plan import Part, assign_shards, read_part
from davylamp.errors import InvalidInput


def cell(model: str, steps: int, images: int, shard_size: int = 8) -> AttackRun:
    subject = ModelOnData(model, f"digest of {model}", "data", "d", images)
    threat_model = ThreatModel("linf", 0.1)
    return AttackRun(subject, "foolbox:pgd", threat_model, parameters={"steps": steps}, shard_size=shard_size)


def test_every_shard_belongs_to_one_part_and_no_part_has_much_more_to_do():
    draw = random.Random(0)
    cells = [cell(f"model{n}", draw.choice((1, 10, 40, 100)), draw.randrange(1, 200)) for n in range(30)]
    for of in (1, 2, 7, 64):
        parts, loads = assign_shards(cells, of), [0.0] * of
        assert {key: len(numbers) for key, numbers in parts.items()} == {each.key: each.shards for each in cells}
        costs = []
        for each in cells:
            for shard, number in enumerate(parts[each.key]):
                costs.append(
                    2 * each.parameters["steps"] * len(each.shard_slice(shard))
                )  # a step: forwards and backwards
                loads[number - 1] += costs[-1]
        assert sum(loads) == sum(costs)
        assert max(loads) - min(loads) <= max(costs)
        assert assign_shards(cells, of) == parts


def test_pieces_of_equal_cost_go_round_so_every_part_gets_of_every_model():
    cells = [cell(name, 10, 32) for name in ("small", "large")]  # four shards each
    assert [assign_shards(cells, 4)[each.key] for each in cells] == [(1, 2, 3, 4), (1, 2, 3, 4)]


def test_the_dearest_pieces_are_dealt_first():
    cheap, dear = cell("a", 1, 24), cell("b", 3, 8)  # three pieces of 16 passes, one of 48
    assert assign_shards([cheap, dear], 2) == {cheap.key: (2, 2, 2), dear.key: (1,)}


def test_more_parts_than_pieces_leave_some_without():
    assert assign_shards([cell("a", 1, 10)], 5) == {cell("a", 1, 10).key: (1, 2)}


@pytest.mark.parametrize(("text", "part"), [("3/64", (3, 64)), ("1/1", (1, 1)), (" 64/64\n", (64, 64))])
def test_a_part_is_read(text, part):
    assert read_part(text) == Part(*part)
    assert str(read_part(text)) == text.strip()


@pytest.mark.parametrize("text", ["0/64", "65/64", "/64", "3", "3/x", "-1/4", "1/0", "1/100001"])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(InvalidInput, match=f"got '{text}'"):
        read_part(text)
