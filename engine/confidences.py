"""Metrics that need how sure a model is, which one that gives labels only does not say."""

from .parametrised import base_of

NO_CONFIDENCES = "the model gives labels only: no confidences"
NO_GRADIENTS = "the model has no gradients"
_RATE = "FR@"
# Those that change where only the largest logit of each image is known (`tests/engine/test_confidences.py`).
OF_CONFIDENCES = frozenset(
    ["CC", "AIAC", "ARTC", "ACAC", "ACTC", "NTE", "FR@K", "FR_AUC", "ENI", "CV", "CCV", "COS", "ARAC", "AITC"]
)


def needs_confidences(symbol: str) -> bool:
    """Whether a metric means nothing of a model that gives labels only."""
    if symbol.startswith(_RATE):
        return symbol != f"{_RATE}1"  # whether the prediction is another one
    return base_of(symbol) in OF_CONFIDENCES
