"""A trainable copy of a classifier's module."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

from torch import Tensor, nn

from ...adapters.models.classifier import Classifier
from ...adapters.models.extract_logits import extract_logits
from ...adapters.user_code_guard import guard_user_code, one_line
from ...errors import InvalidInput, ModelFailed, Unsupported


class TrainableModel(nn.Module):
    """A trainable copy of a classifier's module. It takes images in [0, 1] and returns logits.

    A `Classifier` is always in evaluation mode. This copy can also be in training mode. The parameters of the module
    that require gradients are trained. If no parameter requires gradients, all floating-point parameters are trained.

    Args:
        classifier: the classifier to copy, which is not changed.

    Raises:
        Unsupported: If the classifier has a defence, returns labels only, or has no parameters.
        ModelFailed: If the module of the classifier cannot be copied.
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(self, classifier: Classifier):
        super().__init__()
        if any(isinstance(layer, Classifier) for layer in classifier.model.modules()):
            raise Unsupported(f"expected a model without defences to train, got {classifier.name}")
        if classifier.outputs == "labels":
            raise Unsupported(
                f"expected a model with gradients to train, got {classifier.name}: it returns labels only"
            )
        try:
            self.model = deepcopy(classifier.model)
        except Exception as error:
            raise ModelFailed(f"the model {classifier.name} cannot be copied ({one_line(error)})") from error
        self.title, self.surroundings = f"the model {classifier.name}", classifier.surroundings
        self.classes, self.answers = classifier.num_classes or classifier.answers.classes, classifier.answers
        self.register_buffer("mean", classifier.mean, persistent=False)
        self.register_buffer("std", classifier.std, persistent=False)
        learning = [p for p in self.model.parameters() if p.is_floating_point()]
        if not learning:
            raise Unsupported(f"expected a model with parameters to train, got {classifier.name}, which has none")
        if not any(p.requires_grad for p in learning):
            for parameter in learning:
                parameter.requires_grad_(True)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of images in [0, 1], float32, shape (N, classes)."""
        if self.mean is not None and self.std is not None:
            inputs = (inputs - self.mean) / self.std
        with self.surroundings, guard_user_code(self.title):
            output = self.model(inputs)
        one = self.answers.of_one
        scores = extract_logits(output, self.title, len(inputs), self.classes, first=one)[0]
        return self.answers.read(scores, len(inputs), self.classes, self.title).float()

    @property
    def learning(self) -> list[nn.Parameter]:
        """Parameters of the module that are trained."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def reinitialise(self) -> None:
        """Set all weights to new random values, with the method `reset_parameters()` of each layer.

        Raises:
            InvalidInput: If a layer has parameters but no method `reset_parameters()`.
        """
        for name, layer in self.model.named_modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()
            elif next(layer.parameters(recurse=False), None) is not None:
                raise InvalidInput(
                    f"expected layers with reset_parameters() for random weights, got {type(layer).__name__} ({name}); "
                    "start from the model's weights instead"
                )


@contextmanager
def evaluating(student: nn.Module) -> Iterator[None]:
    """Context manager with a model in evaluation mode, so that batch normalisation does not update its statistics."""
    before = student.training
    student.eval()
    try:
        yield
    finally:
        student.train(before)
