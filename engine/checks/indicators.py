"""The failure indicators by name: title, what to do, paper, and every threshold with its reason."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..finding import Finding, State

# A passing check of proportions or pairs: no image says otherwise. Failing: the exact test at compare's 5 %, or:
LOST_WARN, LOST_FAIL = 0.1, 0.5  # share of successes gone on 8 bits: compare's tenth; most of them
SEED_WARN, SEED_FAIL = 0.05, 0.2  # share of images whose outcome depends on the seed: half and twice compare's tenth
NET_DISAGREEMENT = 0.1  # of two libraries, short of significance: compare's tenth
NEARER = 0.95  # a distance counts as smaller below this share of the other: searches stop within a few per cent
GRADIENT_FAIL = 0.1  # share of images without a usable gradient: compare's tenth; a single one warns
SAME_PASS = 1e-5  # relative to the largest logit: what the same batch may differ by (atomic sums on a GPU)
SAME_BATCH = 1e-2  # relative to the largest logit: what another batch size may differ by (TF32, half precision)
SHRINK_WARN, SHRINK_FAIL = 0.9, 0.5  # median distance with four times the steps relative to the one without
MADE = 0.2  # of what a change of that size moves otherwise: so little is left of one that was made before
FEWEST = 6  # images: with fewer, no outcome of an exact paired test is significant at 5 %


class FailureIndicator(NamedTuple):
    """What an indicator is called, what to do when it fires, and who proposed it.

    Args:
        name: kebab-case id.
        title: for tables; the papers' name where they have one.
        advice: what to do when it warns or fails.
        source: paper and the item there, or "davylamp".
    """

    name: str
    title: str
    advice: str
    source: str


class Judged(NamedTuple):
    """A state with its sentence, whose {names} are those of `numbers`; `advice` is in place of the indicator's."""

    state: State
    sentence: str
    images: Iterable[Any] = ()
    numbers: Mapping[str, Any] = {}
    advice: str = ""


def judged(state: State, sentence: str, images: Iterable[Any] = (), *, advice: str = "", **numbers: Any) -> Judged:
    """A state and a sentence with numbers in it, about some images."""
    return Judged(state, sentence, images, numbers, advice)


def find(name: str, judgement: Judged, subject: str, cell: str = "") -> Finding:
    """The finding of an indicator about a model, or about a cell."""
    state, sentence, images, numbers, advice = judgement
    row = INDICATORS.get(name, FailureIndicator(name, "", "", "davylamp"))
    advice = "" if state == "pass" else advice or (row.advice if state in ("warn", "fail") else "")
    detail = sentence.format(**numbers) if numbers else sentence
    return Finding(name, row.title, state, subject, cell, tuple(map(str, images)), detail, advice, row.source, numbers)


def state_of(failing: Any, warning: Any) -> State:
    """The state of an indicator by what must not be, and what should not."""
    return "fail" if failing else "warn" if warning else "pass"


_CARLINI, _PINTOR = "Carlini et al. 2019", "Pintor et al. 2022"
_ALL = (
    # Of a model.
    FailureIndicator(
        "eval-mode",
        "Model in evaluation mode",
        "make train(False) reach every layer, and give batch norm running statistics",
        "davylamp",
    ),
    FailureIndicator(
        "deterministic",
        "Unstable predictions",
        "switch dropout and noise off; or, where they are a defence, say so: Classifier(model, random=True); --eot",
        f"{_PINTOR}, unstable predictions; {_CARLINI}, ensemble over randomness",
    ),
    FailureIndicator(
        "zero-epsilon",
        "Predictions unchanged at epsilon = 0",
        "make the prediction of an image independent of its batch and of earlier calls, then evaluate again",
        "davylamp",
    ),
    FailureIndicator("logits", "Logits, not probabilities", "return what goes into the softmax, unscaled", "davylamp"),
    FailureIndicator(
        "gradients",
        "Unavailable gradients",
        "replace what has no usable gradient by a differentiable stand-in (BPDA), or use attacks without gradients",
        f"{_PINTOR}, unavailable gradients; {_CARLINI}, non-differentiable components",
    ),
    FailureIndicator(
        "normalisation",
        "Normalisation and labels",
        "give Classifier the mean and std that the weights were trained with, once; check the order of the classes",
        f"davylamp; {_CARLINI}, clean model accuracy",
    ),
    FailureIndicator(
        "transport",
        "Images reach a remote model as they are",
        "count success on 8-bit images (--pixels), and attack with steps of more than a level; or have the server take "
        "floating point",
        "davylamp",
    ),
    # Of a cell, from its records.
    FailureIndicator(
        "bounds",
        "Bounds and epsilon respected",
        "use another library's implementation, or the @repaired row; images outside the rules prove nothing",
        "davylamp",
    ),
    FailureIndicator(
        "older-rules",
        "Judged by older rules",
        "evaluate it again into a new folder: this version does not mix both",
        "davylamp",
    ),
    FailureIndicator(
        "returns",
        "All-black or clean returns",
        "look for masked gradients; or use another library's implementation: these images say nothing about the model",
        "davylamp",
    ),
    FailureIndicator(
        "evidence",
        "Uninformative runs",
        "no-gradient, no-signal, nan-logits, unstable: mend the model, or use attacks without them; model-changed, "
        "crashed: use another library's implementation",
        "davylamp",
    ),
    FailureIndicator(
        "eight-bit",
        "Success lost on 8 bits",
        "report the success on 8 bits, or run with --pixels; ask the attack for a margin (confidence)",
        "davylamp; Bonnet et al. 2021, RoBIC",
    ),
    FailureIndicator(
        "single-step",
        "Single step beats iterations",
        "look for masked gradients; lower the step size; raise the steps",
        f"{_CARLINI}, basic sanity tests",
    ),
    FailureIndicator(
        "black-box",
        "Black-box or transfer attack beats white-box",
        "look for masked gradients; count the worst case over all attacks, image by image",
        f"{_CARLINI}, gradient-free and transferability attacks",
    ),
    # Of an attack over its cells.
    FailureIndicator(
        "epsilon-growth",
        "Success does not grow with epsilon",
        "scale the step size with the radius; look for masked gradients",
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
    # Of a cell, by running it again.
    FailureIndicator(
        "more-steps",
        "Incomplete optimisation",
        "raise the steps until four times as many find nothing more",
        f"{_PINTOR}, incomplete optimisation; {_CARLINI}, attacks have converged",
    ),
    FailureIndicator(
        "unbounded",
        "Unconstrained attack failure",
        "fix the attack or its parameters first: with no bound every image can be changed into another one",
        f"{_PINTOR}, unconstrained attack failure; {_CARLINI}, attacks eventually reach 100 %",
    ),
    FailureIndicator(
        "random-noise",
        "Random noise beats the attack",
        "look for masked gradients: an attack must find what chance finds",
        f"{_CARLINI}, attack with random noise",
    ),
    FailureIndicator(
        "active-test",
        "Active test: planted example missed",
        "do not trust this attack on this model: it missed an example that is known to be there",
        "Zimmermann et al. 2022, binarization test",
    ),
)
INDICATORS: Mapping[str, FailureIndicator] = {indicator.name: indicator for indicator in _ALL}
