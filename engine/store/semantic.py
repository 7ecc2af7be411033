"""Semantic confusion at any threshold, from what a record holds: predictions before and after an attack."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ...metrics import imagenet_wup, semantic_confusion, targeted_semantic_confusion
from ..cell import Cell
from ..hierarchy import similarity_of_file
from ..measure_groups import find_group
from ..metric_names import base_of, is_parametrised, options_of
from .detected import leave_detected

SEMANTIC = ("QI_Wup", "QI_Wup_T")
_IMAGENET = 1000


def semantic_column(
    cell: Cell,
    columns: Mapping[str, np.ndarray],
    counting: np.ndarray,
    logits: Tensor | None,
    adv_logits: Tensor,
    symbol: str,
) -> np.ndarray | None:
    """QI_Wup@T or QI_Wup_T@T of each image, (n,), by the hierarchy of the cell or WordNet; None if it has neither.

    Args:
        cell: what the record is about.
        columns: of the record.
        counting: images that prove something and that the model answered on, (n,) bool.
        logits: of the clean images, (n, K); None: not stored.
        adv_logits: (n, K).
        symbol: with its threshold.
    """
    if not is_parametrised(symbol) or logits is None:
        return None
    group = find_group(cell.measures, "confusion")
    if group is not None and group["hierarchy"]:
        similarity = similarity_of_file(group["hierarchy"], adv_logits.shape[1])
    elif adv_logits.shape[1] == _IMAGENET:
        similarity = imagenet_wup()
    else:
        return None
    answers = adv_logits.masked_fill(~adv_logits.isfinite().all(1)[:, None], 0.0)
    known = np.ones(len(answers), bool)
    if base_of(symbol) == "QI_Wup_T":
        targets = columns["target"].astype(float)
        known = ~np.isnan(targets)
        aims = torch.tensor(np.where(known, targets, 0)).long()
        values = targeted_semantic_confusion(aims, answers, similarity, **options_of(symbol), reduction="none")
    else:
        values = semantic_confusion(logits, answers, similarity, **options_of(symbol), reduction="none")
    return leave_detected(np.where(counting & known, values.numpy(), np.nan), columns)
