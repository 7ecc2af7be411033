"""Results of other programs: read into a results folder as references, and written for their tools."""
