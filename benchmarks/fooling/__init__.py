"""Table and figures of "Fooling beyond flipping the label" (Mopuri et al. 2020)."""
