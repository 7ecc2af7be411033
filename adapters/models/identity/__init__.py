"""Model identity: a digest of a model's weights, code and settings."""
