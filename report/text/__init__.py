"""Output of davylamp's results as terminal tables, plain text, CSV, JSON, Markdown or LaTeX."""
