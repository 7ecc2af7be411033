"""Ways to run an attack: alone, at its smallest radius, with other attacks, at saturation, or in a worst case."""
