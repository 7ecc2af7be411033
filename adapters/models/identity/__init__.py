"""Model identity: a digest of weights, code and settings."""
