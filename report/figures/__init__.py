"""Figures for papers in PDF, SVG or PNG, at the width of a column, and legible in greyscale."""
