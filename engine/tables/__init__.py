"""Tables and curves of a results folder, with intervals."""
