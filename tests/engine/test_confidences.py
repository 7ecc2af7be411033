"""Which metrics mean nothing of a model that gives labels only, and that probabilities are enough for all."""

import inspect

import pytest
import torch

from davylamp.engine.metric_names import needs_confidences
from davylamp.metrics import METRICS

N, K = 64, 6
_DRAW = torch.Generator().manual_seed(0)
_LOGITS = ("logits", "adv_logits", "defended_logits", "defended_adv_logits", "noisy_logits")
GIVEN = {
    **{name: 3 * torch.randn(N, K, generator=_DRAW) for name in _LOGITS[:4]},
    "noisy_logits": 3 * torch.randn(N, 2, K, generator=_DRAW),
    "inputs": torch.full((N, 1, 4, 4), 0.5),
    "noisy_inputs": torch.full((N, 2, 1, 4, 4), 0.52),
    "epsilon": 0.1,
    "labels": torch.randint(0, K, (N,), generator=_DRAW),
    "targets": torch.randint(0, K, (N,), generator=_DRAW),
    "success": torch.rand(N, generator=_DRAW) < 0.5,
    "similarity": torch.rand(K, K, generator=_DRAW),
    "weight": torch.randn(K, 5, generator=_DRAW),
    "k": 3,
}
_CAMS = ("predicted_cams", "predicted_adv_cams", "true_cams", "true_adv_cams")
GIVEN |= {name: torch.rand(N, 4, 4, generator=_DRAW) for name in _CAMS}
OF_LOGITS = [
    symbol for symbol, metric in METRICS.items() if {*_LOGITS} & {*inspect.signature(metric.function).parameters}
]


def value(symbol, change):
    """The metric of logits after a change of all of them."""
    parameters = inspect.signature(METRICS[symbol].function).parameters
    needed = [name for name, each in parameters.items() if each.default is each.empty]
    given = {name: change(GIVEN[name]) if name in _LOGITS else GIVEN[name] for name in needed}
    return METRICS[symbol].function(**given)


def only_the_largest(logits):
    return torch.nn.functional.one_hot(logits.argmax(-1), K).float()


def log_probabilities(logits):
    return logits.softmax(-1).log()


@pytest.mark.parametrize("symbol", OF_LOGITS)
def test_exactly_the_metrics_of_confidences_change_where_the_largest_logit_alone_is_known(symbol):
    same = torch.allclose(value(symbol, torch.clone), value(symbol, only_the_largest), equal_nan=True)
    assert same == (not needs_confidences(symbol))


@pytest.mark.parametrize("symbol", OF_LOGITS)
def test_probabilities_are_enough_for_every_metric_of_logits(symbol):
    torch.testing.assert_close(
        value(symbol, log_probabilities), value(symbol, torch.clone), rtol=1e-4, atol=1e-5, equal_nan=True
    )


def test_symbols_with_a_number():
    assert needs_confidences("FR@5")
    assert not needs_confidences("FR@1")
    assert not needs_confidences("QI_Vis@0.3")
