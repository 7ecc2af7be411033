"""Defences by name: input transformations in front of a model, from libraries, and changes of the model itself."""
