"""Defences in front of a model, by name: input transformations from the libraries that implement them."""
