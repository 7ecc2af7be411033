"""The attack libraries: a folder for each."""
