"""Names from before 0.2.0 are the same objects as the new ones, and warn."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

import davylamp

RENAMED = [
    *[(module, "best_effort", "search_radius") for module in ("davylamp", "davylamp.engine")],
    *[(module, "best_of", "search_portfolio") for module in ("davylamp", "davylamp.engine")],
    ("davylamp.adapters", "attack_of", "canonical_attack"),
    ("davylamp.engine", "Judgement", "PairVerdict"),
    ("davylamp.engine", "Pair", "PairComparison"),
    ("davylamp.engine", "Row", "ImplementationResult"),
    ("davylamp.engine", "SearchResult", "RadiusSearchResult"),
    ("davylamp.engine", "Summary", "EvaluationSummary"),
    ("davylamp.engine", "on_pixels", "round_to_8bit"),
    ("davylamp.engine", "share_interval", "proportion_interval"),
    ("davylamp.scoring", "Dropped", "LeaveOneOut"),
    ("davylamp.scoring", "check_several", "check_rankable"),
    ("davylamp.scoring", "drop_each", "leave_one_out"),
    ("davylamp.scoring", "kinds_of", "item_kinds"),
    ("davylamp.scoring", "place_newcomer", "place_new_subject"),
    ("davylamp.scoring", "plain_mean", "mean_response"),
]


def test_the_page_on_stability_lists_the_modules_with_public_names_and_its_example_warns():
    text = (Path(__file__).parent.parent / "docs/api-stability.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| names in `__all__` of (.*?), with", text, re.MULTILINE)
    modules = {name.strip("`") for name in re.findall(r"`[\w.]+`", row)}
    assert modules == {"davylamp", *(f"davylamp.{part}" for part in ("adapters", "engine", "metrics", "scoring"))}
    assert all(import_module(name).__all__ for name in modules)
    (expression,) = re.findall(r"^>>> davylamp\.(\w+)$", text, re.MULTILINE)
    (sentence,) = re.findall(r"^DeprecationWarning: (.*)$", text, re.MULTILINE)
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(sentence)}$"):
        getattr(davylamp, expression)


@pytest.mark.parametrize(("module", "old", "new"), RENAMED)
def test_an_old_name_is_the_new_object(module, old, new):
    with pytest.warns(DeprecationWarning, match=new):
        value = getattr(import_module(module), old)
    assert value is getattr(import_module(module), new)
    assert old not in import_module(module).__all__


def test_old_attributes_have_the_new_values():
    model, data = davylamp.load_model("demo:digits-cnn"), davylamp.load_data("demo:digits", limit=8)
    result = davylamp.run_attack("foolbox:fgsm", model, data.inputs, data.labels, epsilon=0.1)
    for old, new in (("violated", "invalid"), ("fooled_share", "fooled_rate"), ("robust_share", "robust_rate")):
        with pytest.warns(DeprecationWarning, match=new):
            assert torch.equal(getattr(result, old), getattr(result, new))
    with pytest.warns(DeprecationWarning, match="declare_outputs"):
        model.say("logits")
    assert model.answers.outputs == "logits"
