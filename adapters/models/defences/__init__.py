"""Defences in front of a model, by name: transformations of the input, from the libraries that have them."""
