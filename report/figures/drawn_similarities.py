"""Figure of the similarity between classes: matrix and percentile graph (Mopuri et al. 2020, Figures 9 to 12)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ...adapters.models.identity.digest import digest_model
from ...adapters.models.sandbox.isolated import call_where_layers_are
from ...engine.run.measure import last_weight
from ...engine.sources import ModelSource
from ...engine.store.results import CleanResult
from ...errors import Unavailable, Unsupported
from ...metrics import weight_similarity

_TICKS = (0, 25, 50, 75, 100)


def visual_similarity(clean: CleanResult) -> Tensor:
    """Load an evaluated model, and return the visual similarity of its K classes, shape (K, K).

    Raises:
        DavylampError: If the model cannot be loaded.
        Unavailable: If the loaded model differs from the evaluated model.
        Unsupported: If the model has no linear layer with one output per class.
    """
    subject = clean.subject
    classifier = ModelSource(subject.model).load("cpu")
    if digest_model(classifier, subject.model) != subject.model_digest:
        raise Unavailable(f"{subject.name} differs from the evaluated model; evaluate it again")
    weight = call_where_layers_are(classifier, last_weight, clean.logits.shape[1])
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        raise Unsupported(
            f"{subject.name} has no linear layer with one output per class; select other models with `model`"
        )
    return weight_similarity(weight)


def draw_similarities(make: type, width: float, matrices: Mapping[str, Tensor]) -> Any:
    """Draw similarity matrices, each next to a graph of its percentiles over the pairs of different classes.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        matrices: similarities in [-1, 1], by title, shape (K, K), symmetric. NaN is omitted.
    """
    figure = make(figsize=(width, len(matrices) * (0.5 * width + 0.1)), layout="constrained")
    for row, (title, matrix) in enumerate(matrices.items()):
        values = matrix.double().numpy()
        left, right = (figure.add_subplot(len(matrices), 2, 2 * row + column) for column in (1, 2))
        image = left.imshow(np.ma.masked_invalid(values), cmap="Greys", interpolation="nearest")
        figure.colorbar(image, ax=left, location="bottom", shrink=0.8, pad=0.02)
        left.set_title(title, loc="left")
        left.set_ylabel("class")
        pairs = values[np.triu_indices(len(values), 1)]
        percentages = np.linspace(0, 100, 401)
        right.plot(percentages, np.percentile(pairs[np.isfinite(pairs)], percentages), color="black")
        right.set_xticks(_TICKS)
        right.set_xlabel("% of pairs below")
        right.set_ylabel("similarity")
        right.grid(visible=True)
    return figure
