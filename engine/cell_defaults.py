"""Default metric groups and shard size of a run; importable without torch."""

# Groups of metrics. Those whose metrics need their own group (`Metric.needs`) are measured only on request.
ALL_MEASURES = ("effect", "attention", "cost", "distance", "frequency", "perceptual", "confusion")
MEASURES = ("effect", "cost", "distance", "frequency", "confusion")
CURVE = "curve"  # a group that is measured only on request, because it costs an attack up to a third more
SHARD_SIZE = 64  # images attacked, measured and saved at once
