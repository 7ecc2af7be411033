"""No model of two classes looks more robust, or is praised, for giving something else than it says."""

import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters.models.extract_logits import explain_accuracy
from davylamp.errors import InvalidInput
from tests.hostile import outputs as kit

WEIGHT = torch.randn(36, generator=torch.Generator().manual_seed(1))
IMAGES = 0.3 + 0.4 * torch.rand(24, 1, 6, 6, generator=torch.Generator().manual_seed(0))
BIAS = -(IMAGES.flatten(1) @ WEIGHT).sort().values[11:13].mean()
RADIUS = 0.02
QUERIES = 1000  # of the ensemble: its three attacks by gradients take some 300, Square the rest (5000 by itself)


class Honest(nn.Module):
    """One logit w.x + b."""

    def forward(self, inputs):
        return inputs.flatten(1) @ WEIGHT + BIAS


Z = Honest()(IMAGES)
LABELS = (Z > 0).long()
STANDS = Z.abs() > RADIUS * WEIGHT.abs().sum()  # what no perturbation of that radius can fool
REFUSED = {"SoftmaxSaidLogits", "LogitSaidProbability", "LogitsSaidLogit", "LogitUnsaid"}
HALF_WRONG = {"OtherOrder", "OneClass", "ProbabilitySaidLogit"}  # whose other half may stand: it is one answer for all
OTHER = {"ThirdClass", *HALF_WRONG}  # than the honest one, and so with examples of its own


@pytest.mark.parametrize("attack", ["pyautoattack:margin-ensemble", "torchattacks:pgd"])
@pytest.mark.parametrize("name", kit.PROGRAMS)
def test_no_program_is_more_robust_than_the_honest_model(name, attack):
    model = kit.PROGRAMS[name](Honest())
    words = {"norm": "linf", "epsilon": RADIUS, "steps": 20}
    if "ensemble" in attack:
        words["max_queries"] = QUERIES
    if name in REFUSED:
        with pytest.raises(InvalidInput, match=r"as declared|outputs='logit") as caught:
            davylamp.run_attack(attack, model, IMAGES, LABELS, **words)
        assert "\n" not in str(caught.value)
        return
    if name == "NotANumberWhereUnsure" and not (Z.abs() > 0.3).all():
        with pytest.raises(InvalidInput, match="finite logits"):
            davylamp.run_attack(attack, model, IMAGES, LABELS, **words)
        sure = Z.abs() > 0.3
    else:
        sure = torch.ones(24, dtype=torch.bool)
    result = davylamp.run_attack(attack, model, IMAGES[sure], LABELS[sure], **words)
    assert not (result.robust & ~STANDS[sure]).any() or name in {"HiddenGradient", *HALF_WRONG}
    assert not (result.success & STANDS[sure]).any() or name in OTHER
    if name in HALF_WRONG:
        assert int(result.robust.sum()) <= 12
        assert explain_accuracy(result.logits, result.labels) in {*result.notes, None}


def test_a_gradient_of_the_wrong_sign_is_found_by_scores():
    """Gradients lead nowhere; Square of the ensemble needs none."""
    model = kit.HiddenGradient(Honest())
    words = {"norm": "linf", "epsilon": RADIUS, "steps": 20}
    by_gradients = davylamp.run_attack("torchattacks:pgd", model, IMAGES, LABELS, **words)
    words["max_queries"] = QUERIES
    ensemble = davylamp.run_attack("pyautoattack:margin-ensemble", model, IMAGES, LABELS, **words)
    assert int(ensemble.success.sum()) > int(by_gradients.success.sum())
