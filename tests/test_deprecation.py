"""Names from before 0.2.0 are the same objects as the new ones, and warn."""

from importlib import import_module

import pytest
import torch

import davylamp

RENAMED = [
    (module, old, new)
    for module in ("davylamp", "davylamp.adapters", "davylamp.engine", "davylamp.scoring")
    for old, new in import_module(module)._RENAMED.items()
]


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
