"""A run in the process of its plan begins with the model that the plan loaded."""

from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan, sources
from davylamp.engine.store import store


def test_a_model_of_weights_is_loaded_once_for_plan_and_run(tmp_path, monkeypatch):
    loads, load = [], sources.load_model
    monkeypatch.setattr(
        sources, "load_model", lambda name, *rest, **named: loads.append(name) or load(name, *rest, **named)
    )
    config = Config(("demo:efficientnet-lite0",), (AttackChoice("torchattacks:fgsm", "linf", 4 / 255),), limit=2)
    plan = make_plan(config)
    assert evaluate(plan, ResultsStore(tmp_path / "first")).done == 1
    assert len(loads) == 1
    evaluate(plan, ResultsStore(tmp_path / "second"))  # a plan keeps no model in memory
    assert len(loads) == 2


def test_records_are_read_a_number_of_times_that_grows_as_the_shards(tmp_path, monkeypatch):
    """Each shard is saved, and the run joined when all are there: reading the earlier ones each time is quadratic."""
    reads, read_files = [], store.read_files
    monkeypatch.setattr(
        store,
        "read_files",
        lambda files, name, *rest, **named: reads.append(name) or read_files(files, name, *rest, **named),
    )
    attack = AttackChoice("foolbox:fgsm", "linf", 0.1)
    for shards in (5, 20):
        reads.clear()
        config = Config(("demo:digits-cnn",), (attack,), "demo:digits", shards * 2, shard_size=2, measures=("effect",))
        assert evaluate(make_plan(config), ResultsStore(tmp_path / str(shards))).done == 1
        found = [name for name in reads if name.startswith("parts/")]
        assert len(found) <= 5 * shards  # missing files are looked for twice, before and after the lock
        assert sum(name.startswith("clean/") for name in reads) <= 5
