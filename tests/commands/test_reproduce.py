"""`davylamp reproduce` as a user meets it."""

import json
from importlib import import_module

from davylamp.commands.reproduce import REPRODUCTIONS


def test_every_name_is_a_module(run):
    code, out, _ = run("reproduce")
    assert code == 0
    for name, (module, title) in REPRODUCTIONS.items():
        found = import_module(f"davylamp.benchmarks.{module}")
        assert callable(found.run)
        assert callable(found.print_result)
        assert name in out
        assert title in out


def test_table_9_as_json_and_as_a_table(run):
    code, out, _ = run("reproduce", "canary-table9", "--quick", "--json")
    assert code == 0
    result = json.loads(out)
    assert {"spearman", "kendall", "max_difference", "rows"} <= set(result["white"])
    row = {"model", "score", "published", "rank", "published_rank", "rank_low", "rank_high"}
    assert all(set(each) == row for each in result["white"]["rows"])
    assert result["seconds"] > 0
    code, out, _ = run("reproduce", "canary-table9", "--quick")
    assert code == 0
    assert "EfficientNetV2" in out
    assert "Spearman 0.9" in out


def test_an_unknown_name_is_one_line(run):
    code, out, err = run("reproduce", "canary-table10")
    assert (code, out) == (1, "")
    assert "canary-table9" in err
    assert err.count("\n") == 1
