"""The HTML page: built once, or served while an evaluation runs."""
