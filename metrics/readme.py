"""README.md of this folder, made from `METRICS`.

Run as `python -m davylamp.metrics.readme` (alone: `python -m metrics.readme`) after a metric is added or changed.
"""

from pathlib import Path

from . import METRICS, NOTATION, Metric

README = Path(__file__).with_name("README.md")
HEAD = """\
# metrics

Measures of adversarial attacks, models and defences. The folder works inside davylamp and alone: copy it into a project
as `metrics`; it needs torch, NumPy, SciPy and piq and nothing else of davylamp.

```python
import torch
from metrics import METRICS, misclassification_ratio, summarise

logits, adv_logits, labels = torch.randn(8, 10), torch.randn(8, 10), torch.randint(10, (8,))
misclassification_ratio(logits, adv_logits, labels)  # a scalar, NaN if no image counts
values = misclassification_ratio(logits, adv_logits, labels, reduction="none")  # (8,), NaN where it does not count
summarise(values)  # Summary(mean=..., defined=..., undefined=...)
METRICS["MR"].function(logits, adv_logits, labels=labels)  # by symbol; METRICS["MR"].robust_when == "lower"
```

- Images are floats in [0, 1], shape (N, C, H, W); logits (N, K); labels int64. Anything else is a `ValueError`.
- Everything is batched, computed on the device of the arguments and, if they are float64, in float64. What compares
  images carries no gradient: these are measures, not losses.
- `success` says which images count; all true counts failed attacks too. Options of a function hold the other readings
  of its paper, such as `euclidean_distortion(..., normalisation="published")` for the scale of CANARY's tables.
- DISTS needs the weights of VGG16: `dists(..., features=...)` takes torchvision's VGG16 or the path of its weights.
- `grad_cam(model, inputs, classes)` finds the layer of torchvision's classifiers and EfficientNet-Lite; else name it.
- Without a symbol: curves (`success_curve`, `accuracy_curve`, `best_distances`, `empirical_half_distortion`), means of
  tables of transfer rates (`transfer_...`), class similarities (`imagenet_wup`, `wup_from_paths`, `weight_similarity`),
  `flip_rates` and `noise_ratios` (what mFR and ENI average, for `summarise`) and `orthogonal_directions`.
- Data and their licences: `data/NOTICE.md`. This page: `python -m metrics.readme`.

## Metrics

"Robust when" says which values are better for the model or the defence. In the formulas:
{notation}

"""


def render() -> str:
    """Text of the page."""
    heads = ("symbol", "function", "also", "meaning", "formula", "robust when", "range", "unit", "source")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return HEAD.replace("{notation}", NOTATION) + "\n".join(rows + [_row(record) for record in METRICS.values()]) + "\n"


def _row(record: Metric) -> str:
    """Line of the table."""
    cells = (
        record.symbol,
        f"`{record.function.__name__}`",
        ", ".join(record.aliases) or "-",
        record.meaning,
        f"`{record.formula}`".replace("|", "\\|"),
        record.robust_when or "-",
        record.range,
        record.unit,
        record.source,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    README.write_text(render(), encoding="utf-8")
