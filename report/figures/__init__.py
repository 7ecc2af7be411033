"""Figures of a results folder for a paper: PDF and SVG in the width of a column, legible in grey."""
