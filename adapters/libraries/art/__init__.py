"""The Adversarial Robustness Toolbox (ART)."""
