"""Ways to run an attack: alone, at its smallest radius, with others, at saturation, or as a worst case."""
