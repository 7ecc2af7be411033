"""Code that the reproductions share: settings, small models, published numbers, checks."""
