"""Tables of CANARY (Sun et al. 2023)."""
