"""What makes two models the same: a digest of weights, code and settings."""
