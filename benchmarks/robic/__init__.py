"""Table and figures of RoBIC (Maho et al. 2021)."""
