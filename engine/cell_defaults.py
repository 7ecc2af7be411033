"""Default metric groups and shard size of a run; importable without torch."""

MEASURES = ("effect", "attention", "cost", "distance", "frequency", "perceptual", "confusion")  # groups of metrics
CURVE = "curve"  # a group that is measured only on request, because it costs an attack up to a third more
SHARD_SIZE = 64  # images attacked, measured and saved at once
