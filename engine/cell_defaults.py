"""Default groups of metrics and shard size of a cell; importable without torch."""

MEASURES = ("effect", "attention", "cost", "distance", "frequency", "perceptual", "confusion")  # groups of metrics
CURVE = "curve"  # a group that is measured only if it is asked for: it costs an attack up to a third more
SHARD_SIZE = 64  # images that are attacked, measured and saved at once: what a killed run loses at most
