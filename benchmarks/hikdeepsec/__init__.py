"""Tables of HikDeep-Sec (Zhang et al. 2023)."""
