"""Output on a terminal, in a pipe, and as CSV, JSON, Markdown or LaTeX."""
