"""Features of images: the input of a model's last layer."""

from types import TracebackType

import torch
from torch import Tensor, nn

from .queries import Model, query_logits

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Features:
    """Context manager that reads features of images: the input of the last linear layer or convolution of a model.

    Features are averaged over image positions. For a residual network, they are the output of the global average
    pooling. If a model has no such layer, or its layers cannot be read, the logits are the features. On exit, the
    model is as before.
    """

    def __init__(self, model: Model):
        self.model = model
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._asked: list[Tensor] = []  # by pass of the model: the images, if they can be known
        self._given: list[Tensor] = []  # by pass: the features

    def __enter__(self) -> "Features":
        if isinstance(self.model, nn.Module):
            layers = [module for module in self.model.modules() if isinstance(module, _WEIGHTED)]
            self._handles = [layer.register_forward_pre_hook(self._note_layer) for layer in layers]
            if isinstance(counted := getattr(self.model, "classifier", None), nn.Module):
                self._handles.append(counted.register_forward_pre_hook(self._note_pass))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def _note_pass(self, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        self._asked.append(given[0])

    def _note_layer(self, layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        # A later layer of the same pass replaces an earlier one.
        place = max(len(self._asked) - 1, 0)
        if given:
            self._given[place:] = [_averaged(given[0], isinstance(layer, nn.Linear))]

    def of(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the features of points (m, C, H, W), where point i is a version of image rows[i].

        Returns:
            The features, shape (m, f), and whether the model computed each point, shape (m,), bool. Points of an image
            without remaining queries are not computed, and their features are zero. The features are differentiable if
            the points require gradients.
        """
        self._asked, self._given = [], []
        logits = query_logits(self.model, points, rows)
        answered = torch.ones(len(points), dtype=torch.bool, device=points.device)
        if not self._given:
            return logits, answered
        if len(self._given) == 1 and len(self._given[0]) == len(points):
            features = self._given[0]
        else:  # some points were queried separately from the others, some not at all
            features = self._given[0].new_zeros(len(points), self._given[0].shape[1])
            answered = ~answered
            for images, part in zip(self._asked, self._given, strict=True):
                which = torch.cdist(images.detach().flatten(1), points.detach().flatten(1)).argmin(1)
                features = features.index_put((which,), part)
                answered[which] = True
        # A backward pass counts when it reaches the logits.
        return features + 0 * logits.nan_to_num(0, 0, 0).sum(1, keepdim=True), answered


def _averaged(given: Tensor, linear: bool) -> Tensor:
    """Average the input of a layer over its positions, to shape (m, f).

    The input has shape (m, f, ...) or, if `linear`, (m, ..., f).
    """
    places = tuple(range(1, given.ndim - 1)) if linear else tuple(range(2, given.ndim))
    return given.float().mean(places) if places else given.float()
