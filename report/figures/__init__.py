"""Figures for papers: PDF and SVG at column width, legible in greyscale."""
