"""The published training methods, with the default values of their parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InvalidInput, UnknownName
from . import losses
from .settings import LOOP, WORDS, TrainingSettings, check_value


@dataclass(frozen=True)
class TrainingMethod:
    """A published training method.

    Args:
        name: name by which users select the method, such as "trades".
        title: title for display.
        source: paper that introduced the method. "" for training on clean images.
        loss: generator of the method's losses (see `losses`).
        params: default values of the parameters of this method, by name. Parameters of all methods (`LOOP`) are listed
            here only if the method has a different default.
        step_share: default step size, in units of epsilon / steps. None if the method has no parameter `step_size`.
        fixed: parameters that define the method, which users cannot change.
        stages: number of trainings that follow each other. After each training except the last, the trained model
            becomes the teacher, and the weights of the model are set back to the initial weights.
        norms: norms that the method supports.
        called: names of the method in papers that evaluate the method.
    """

    name: str
    title: str
    source: str
    loss: losses.Losses
    params: Mapping[str, Any] = field(default_factory=dict)
    step_share: float | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    stages: int = 1
    norms: tuple[str, ...] = ("linf", "l2")
    called: str = ""

    @property
    def defaults(self) -> dict[str, Any]:
        """Default values of the parameters that users can change, by name.

        The default of `step_size` is None if the step size follows from `step_share`.
        """
        steps = {} if self.step_share is None else {"step_size": None}
        return {**LOOP, **steps, **self.params}


_STEPS = {"steps": 10}
ROWS = (
    TrainingMethod(
        "natural", "Training on clean images", "", losses.natural, called="CANARY: NATURAL; AISafety: Vanilla"
    ),
    TrainingMethod(
        "natural-noise",
        "Training on Gaussian noise",
        "Zantedeschi et al. 2017, Efficient Defenses Against Adversarial Attacks",
        losses.natural_noise,
        {"std": 0.1, "clean_share": 0.5},
    ),
    TrainingMethod(
        "fgsm",
        "Adversarial training with one step",
        "Goodfellow et al. 2015, Explaining and Harnessing Adversarial Examples",
        losses.fgsm,
        {"clean_share": 0.5},
        norms=("linf",),
        called="AISafety: SAT",
    ),
    TrainingMethod(
        "least-likely",
        "Adversarial training with a step to the least likely class",
        "Kurakin et al. 2017, Adversarial Machine Learning at Scale",
        losses.least_likely,
        {"clean_share": 10 / 13},
        norms=("linf",),
        called="AISafety: NAT",
    ),
    TrainingMethod(
        "pgd",
        "Adversarial training with PGD",
        "Madry et al. 2018, Towards Deep Learning Models Resistant to Adversarial Attacks",
        losses.pgd,
        {**_STEPS, "start": "uniform", "clean_share": 0.0},
        2.5,
        called="CANARY: NAT, Madry (start=gaussian); AISafety: PAT (clean_share=0.5)",
    ),
    TrainingMethod(
        "logit-pairing",
        "Adversarial logit pairing",
        "Kannan et al. 2018, Adversarial Logit Pairing",
        losses.logit_pairing,
        {**_STEPS, "start": "uniform", "clean_share": 0.5, "beta": 0.5},
        2.5,
        called="HikDeep-Sec: section 1.2",
    ),
    TrainingMethod(
        "trades",
        "TRADES",
        "Zhang et al. 2019, Theoretically Principled Trade-off between Robustness and Accuracy",
        losses.trades,
        {**_STEPS, "start": "gaussian", "beta": 6.0},
        2.5,
        called="CANARY: TRADES; AISafety: TRADES",
    ),
    TrainingMethod(
        "mart",
        "MART",
        "Wang et al. 2020, Improving Adversarial Robustness Requires Revisiting Misclassified Examples",
        losses.mart,
        {**_STEPS, "start": "gaussian", "beta": 5.0},
        2.5,
        called="CANARY: MART (beta=6)",
    ),
    TrainingMethod(
        "awp",
        "Adversarial weight perturbation with PGD",
        "Wu et al. 2020, Adversarial Weight Perturbation Helps Robust Generalization",
        losses.awp,
        {**_STEPS, "start": "uniform", "gamma": 0.01},
        2.5,
    ),
    TrainingMethod(
        "free",
        "Free adversarial training",
        "Shafahi et al. 2019, Adversarial Training for Free!",
        losses.free,
        {"replays": 8},
        1.0,
        {"steps": 1},
    ),
    TrainingMethod(
        "fbf",
        "Fast adversarial training",
        "Wong et al. 2020, Fast is Better than Free",
        losses.pgd,
        {"schedule": "cyclic"},
        1.25,
        {"steps": 1, "start": "uniform", "clean_share": 0.0},
    ),
    TrainingMethod(
        "distillation",
        "Defensive distillation",
        "Papernot et al. 2016, Distillation as a Defense to Adversarial Perturbations",
        losses.distillation,
        {"temperature": 20.0},
        stages=2,
    ),
)
METHODS: Mapping[str, TrainingMethod] = {row.name: row for row in ROWS}


def find_method(name: str) -> TrainingMethod:
    """Return the training method with a given name. Raises UnknownName if the name is unknown."""
    if name not in METHODS:
        raise UnknownName("method of training", name, METHODS)
    return METHODS[name]


def make_settings(method: str, norm: str, epsilon: float, given: Mapping[str, Any], **more: Any) -> TrainingSettings:
    """Build the settings of a training. Parameters that are not given have the defaults of the method.

    Args:
        method: name of the method, from `METHODS`.
        norm: norm of the training, "linf" or "l2".
        epsilon: radius, for pixels in [0, 1].
        given: parameters of the training, by name. Numbers may be given as text.
        **more: fields `seed`, `mixed_precision` and `fresh` of `TrainingSettings`.

    Raises:
        UnknownName: If the method does not exist, or if the method has no parameter of this name.
        InvalidInput: If a value is out of range, or if the method does not support the norm.
    """
    row = find_method(method)
    values = {**row.fixed, **row.defaults}
    for word, value in given.items():
        if word not in row.defaults:
            raise UnknownName(f"parameter of {method}", word, row.defaults)
        values[word] = check_value(word, value)
    settings = TrainingSettings(method, norm, epsilon, values, **more)
    if norm not in row.norms:
        raise InvalidInput(f"expected norm as {' or '.join(row.norms)} for {method}, got {norm}")
    if row.step_share is not None and values["step_size"] is None:
        values["step_size"] = row.step_share * epsilon / values["steps"]
    return settings


def describe_method(row: TrainingMethod) -> dict[str, Any]:
    """Return the description of a method as JSON types, for lists of methods."""
    steps = {} if row.step_share is None else {"step_size": f"{row.step_share:g} epsilon / steps"}
    return {
        "method": row.name,
        "title": row.title,
        "source": row.source,
        "norms": list(row.norms),
        "defaults": {**row.defaults, **steps},
        "called": row.called,
    }


def describe_parameter(word: str) -> str:
    """Return the meaning of a training parameter in words."""
    return WORDS[word].meaning
