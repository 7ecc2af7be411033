"""Output as terminal tables, plain text, CSV, JSON, Markdown or LaTeX."""
