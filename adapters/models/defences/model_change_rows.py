"""The named defences that change the model instead of its input."""

from ...attack import Parameter
from .spec import DefenceSpec

MODEL_CHANGE_ROWS = (
    DefenceSpec(
        "prune",
        "torch",
        "Pruning of the smallest weights",
        "Guo et al. 2018, Sparse DNNs with Improved Adversarial Robustness",
        ".model_changes:prune_weights",
        "torch",
        {"amount": (Parameter(float, 0, 0.9999, "proportion of the weights that become 0", 0), 0.5)},
        ("exact",),
        wraps=True,
        changes_weights=True,
        findings=("prunes a trained model once, whereas the paper trains again after each of several steps",),
    ),
    DefenceSpec(
        "quantise-weights",
        "torch",
        "Quantised weights",
        "Zhao et al. 2019, To Compress or Not to Compress: its weights, not its activations",
        ".model_changes:quantise_weights",
        "torch",
        {"bits": (Parameter(int, 2, 8, "bits of each weight"), 8)},
        ("exact",),
        wraps=True,
        changes_weights=True,
        findings=(
            "computes in floating point with the rounded weights, so an integer kernel may give different results",
        ),
    ),
    DefenceSpec(
        "ensemble",
        "davylamp",
        "Ensemble (ensemble:MODEL): mean of the probabilities",
        "Strauss et al. 2017, Ensemble Methods as a Defense to Adversarial Perturbations",
        ".model_changes:join_ensemble",
        "torch",
        gradients=("exact",),
        wraps=True,
        takes_model=True,
    ),
)
