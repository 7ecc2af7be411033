"""The honest evaluation of a defence: attacks that adapt to it, and what they leave of it."""
