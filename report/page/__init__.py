"""The HTML report of a results folder, written to a file or served over HTTP during an evaluation."""
