"""torchattacks."""
