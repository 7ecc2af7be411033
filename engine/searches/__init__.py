"""How one image gets its best attack: by itself, at its smallest radius, by several, at saturation, in turn."""
