"""A model and its detector combined into one classifier, for attacks that know both."""

import torch
from torch import Tensor, nn

from ....errors import InvalidInput, Unsupported
from ...paths import expand_path
from ..clamp import clamp_with_edge_gradient
from ..classifier import Classifier
from ..identity.digest import digest_model
from .detector_file import read_detector, threshold_at
from .scorer import Scorer

PREFIX = "detector:"
_RATE = 0.05


def is_detector_part(text: str) -> bool:
    """Whether a part of a model name is a detector: "detector:FILE", which ",fpr=0.01" may follow."""
    return text.startswith(PREFIX)


def add_detector(classifier: Classifier, text: str, source: str, name: str) -> Classifier:
    """Add a class "detected" to a classifier. It is predicted if the detector flags the image as adversarial.

    Args:
        classifier: the detector's model.
        text: "detector:FILE" or "detector:FILE,fpr=0.01", with the false-positive rate of the threshold (default 0.05).
        source: name by which the classifier was loaded.
        name: name of the result.

    Raises:
        Unsupported: if the detector has no gradients.
        InvalidInput: if the detector was trained for a different model.
        DavylampError: as for `read_detector`.
    """
    file, _, rate = text.removeprefix(PREFIX).partition(",fpr=")
    trained = read_detector(expand_path(file))
    if not trained.row.differentiable:
        raise Unsupported(
            f"{trained.row.full_name} has no gradients, so it cannot be attacked together with the model; measure it on"
            " examples of the model alone (davylamp detect)"
        )
    try:
        line = threshold_at(trained.calibration, float(rate) if rate else _RATE)
    except ValueError:
        raise InvalidInput(f"expected fpr as a rate in [0, 1), such as fpr=0.05, got {rate!r}") from None
    scorer = trained.bind(classifier, digest_model(classifier, source))
    sizes = {word: getattr(classifier, word) for word in ("resize", "crop", "interpolation")}
    joint = Classifier(_Joint(classifier, scorer, line), name=name, random=classifier.random, **sizes)
    joint.detects = True
    return joint


class _Joint(nn.Module):
    """A classifier with one additional class, "detected".

    The logit of this class is the largest logit of the model, plus the detector's score, minus the threshold. It is the
    largest logit exactly if the detector reports the image as adversarial. Carlini and Wagner (2017, Adversarial
    Examples Are Not Easily Detected) multiply instead of adding, which works only if the largest logit is positive.
    """

    def __init__(self, classifier: Classifier, scorer: Scorer, line: float):
        super().__init__()
        self.classifier, self.line = classifier, line
        self.learned = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(t, requires_grad=False) for name, t in scorer.state().items()}
        )
        self._score = scorer.score_with_gradients

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of the classes and of "detected", shape (N, K + 1)."""
        logits = self.classifier(inputs)
        above = self._score(clamp_with_edge_gradient(inputs)).to(logits) - self.line
        return torch.cat([logits, (logits.amax(1) + above)[:, None]], 1)
