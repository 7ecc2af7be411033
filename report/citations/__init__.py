"""BibTeX entries for everything that a results folder used, or for attacks, libraries and metrics by name."""
