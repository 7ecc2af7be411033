"""All failure indicators, with title, advice and source, and the thresholds of all indicators with their reasons."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..finding import Finding, State

# Checks of proportions or pairs pass if no image contradicts them. They fail by the exact test at 5 %, or by:
LOST_WARN, LOST_FAIL = 0.1, 0.5  # rate of successes lost on 8 bits: a tenth as in compare; the majority
SEED_WARN, SEED_FAIL = 0.05, 0.2  # rate of images whose outcome depends on the seed: half and twice compare's tenth
NET_DISAGREEMENT = 0.1  # between two libraries without significance: compare's tenth
NEARER = 0.95  # a distance counts as smaller below this multiple of the other: searches stop within a few per cent
GRADIENT_FAIL = 0.1  # rate of images without a usable gradient: compare's tenth; a single one warns
SAME_PASS = 1e-5  # relative to the largest logit: tolerance for the same batch (atomic sums on a GPU)
SAME_BATCH = 1e-2  # relative to the largest logit: tolerance for a different batch size (TF32, half precision)
SHRINK_WARN, SHRINK_FAIL = 0.9, 0.5  # median distance with four times the steps, relative to the original
MADE = 0.2  # relative to a change of the same size: the effect of a change that was already applied is below this
FEWEST = 6  # fewest images with which an exact paired test can be significant at 5 %


class FailureIndicator(NamedTuple):
    """A failure indicator: a test for a sign that measured robustness is not real.

    Args:
        name: kebab-case id.
        title: title for tables. If a paper defines the indicator, the paper's name for it.
        advice: what the user can do if the indicator warns or fails.
        source: the paper and the section, or "davylamp".
    """

    name: str
    title: str
    advice: str
    source: str


class Judged(NamedTuple):
    """The result of a failure indicator for one model or run.

    Args:
        state: "pass", "warn", "fail" or "unknown".
        sentence: the reason, as a format string with the names of `numbers`.
        images: images concerned.
        numbers: the numbers of the sentence.
        advice: what the user can do. "" for the usual advice of the indicator.
    """

    state: State
    sentence: str
    images: Iterable[Any] = ()
    numbers: Mapping[str, Any] = {}
    advice: str = ""


def judged(state: State, sentence: str, images: Iterable[Any] = (), *, advice: str = "", **numbers: Any) -> Judged:
    """Build a `Judged` with the numbers of its sentence as keyword arguments."""
    return Judged(state, sentence, images, numbers, advice)


def find(name: str, judgement: Judged, subject: str, cell: str = "") -> Finding:
    """Build the finding of a failure indicator (by its id) about a model or a run, whose name or title is `subject`."""
    state, sentence, images, numbers, advice = judgement
    row = INDICATORS.get(name, FailureIndicator(name, "", "", "davylamp"))
    advice = "" if state == "pass" else advice or (row.advice if state in ("warn", "fail") else "")
    detail = sentence.format(**numbers) if numbers else sentence
    return Finding(name, row.title, state, subject, cell, tuple(map(str, images)), detail, advice, row.source, numbers)


def state_of(failing: Any, warning: Any) -> State:
    """Return "fail" if the first condition holds, otherwise "warn" if the second condition holds, otherwise "pass"."""
    return "fail" if failing else "warn" if warning else "pass"


_CARLINI, _PINTOR = "Carlini et al. 2019", "Pintor et al. 2022"
_ALL = (
    # Indicators of a model.
    FailureIndicator(
        "eval-mode",
        "Model in evaluation mode",
        "make train(False) reach every layer, and use batch norm with running statistics",
        "davylamp",
    ),
    FailureIndicator(
        "deterministic",
        "Unstable predictions",
        (
            "disable dropout and noise. If they are a defence, declare the model random (Classifier(model, "
            "random=True)) and use --eot"
        ),
        f"{_PINTOR}, unstable predictions; {_CARLINI}, ensemble over randomness",
    ),
    FailureIndicator(
        "zero-epsilon",
        "Predictions unchanged at epsilon = 0",
        "make the prediction of an image independent of its batch and of earlier calls, then evaluate again",
        "davylamp",
    ),
    FailureIndicator("logits", "Logits, not probabilities", "return the input of the softmax, unscaled", "davylamp"),
    FailureIndicator(
        "gradients",
        "Unavailable gradients",
        "replace the non-differentiable part with a differentiable approximation (BPDA), or use gradient-free attacks",
        f"{_PINTOR}, unavailable gradients; {_CARLINI}, non-differentiable components",
    ),
    FailureIndicator(
        "normalisation",
        "Normalisation and labels",
        "normalise once, by passing the training's mean and std to Classifier; check the order of the classes",
        f"davylamp; {_CARLINI}, clean model accuracy",
    ),
    FailureIndicator(
        "transport",
        "Images reach a remote model unchanged",
        "count success on 8-bit images (--eight-bit), and use steps larger than a grey level; or make the server "
        "accept floating point",
        "davylamp",
    ),
    # Indicators of a run, from its record.
    FailureIndicator(
        "bounds",
        "Bounds and epsilon respected",
        "use the implementation of a different library, or the @fixed variant; images outside the threat model are "
        "invalid",
        "davylamp",
    ),
    FailureIndicator(
        "older-rules",
        "Evaluated with older rules",
        "evaluate again into a new folder: this version does not mix results of different rules",
        "davylamp",
    ),
    FailureIndicator(
        "returns",
        "Black or unchanged images returned",
        "look for gradient masking, or use a different library's implementation: these images say nothing "
        "about the model",
        "davylamp",
    ),
    FailureIndicator(
        "evidence",
        "Uninformative runs",
        "no-gradient, no-signal, nan-logits, unstable: fix the model, or use gradient-free attacks; model-changed, "
        "crashed: use another library's implementation",
        "davylamp",
    ),
    FailureIndicator(
        "eight-bit",
        "Success lost on 8 bits",
        "report the success on 8 bits, or run with --eight-bit; give the attack a margin (confidence)",
        "davylamp; Bonnet et al. 2021, RoBIC",
    ),
    FailureIndicator(
        "single-step",
        "Single step beats iterations",
        "look for gradient masking; reduce the step size; increase the steps",
        f"{_CARLINI}, basic sanity tests",
    ),
    FailureIndicator(
        "black-box",
        "Black-box or transfer attack beats white-box",
        "look for gradient masking; report the worst case over all attacks",
        f"{_CARLINI}, gradient-free and transferability attacks",
    ),
    # Indicators of an attack over several runs.
    FailureIndicator(
        "epsilon-growth",
        "Success does not grow with epsilon",
        "scale the step size with the radius; look for gradient masking",
        f"{_CARLINI}, basic sanity tests",
    ),
    FailureIndicator(
        "seeds",
        "Seed spread",
        "add restarts, and count an image as fooled if any seed fools it",
        f"davylamp; {_CARLINI}, investigate attack hyperparameters",
    ),
    FailureIndicator(
        "libraries",
        "Libraries disagree",
        "compare the implementations (davylamp compare ATTACK) and trust the stronger one",
        "davylamp",
    ),
    # Indicators of a run, from probes.
    FailureIndicator(
        "more-steps",
        "Incomplete optimisation",
        "increase the number of steps until four times as many steps fool no further image",
        f"{_PINTOR}, incomplete optimisation; {_CARLINI}, attacks have converged",
    ),
    FailureIndicator(
        "unbounded",
        "Unconstrained attack failure",
        "fix the attack or its parameters first: without a bound, every image can be turned into any other",
        f"{_PINTOR}, unconstrained attack failure; {_CARLINI}, attacks eventually reach 100 %",
    ),
    FailureIndicator(
        "random-noise",
        "Random noise beats the attack",
        "look for gradient masking: an attack should find at least what random noise finds",
        f"{_CARLINI}, attack with random noise",
    ),
    FailureIndicator(
        "active-test",
        "Active test: planted example missed",
        "do not trust this attack on this model: it missed an example that is known to exist",
        "Zimmermann et al. 2022, binarization test",
    ),
)
INDICATORS: Mapping[str, FailureIndicator] = {indicator.name: indicator for indicator in _ALL}
