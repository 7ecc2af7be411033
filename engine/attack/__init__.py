"""How one image gets its best attack: search over parameters, bisection over radii, saturation of a budget."""
