"""A run in the process of its plan begins with the model that the plan loaded."""

from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan, sources


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
