"""Best effort of several attacks against every single one, at equal numbers of passes."""
