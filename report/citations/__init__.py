"""BibTeX of what a results folder used, or of attacks, libraries and metrics by name."""
