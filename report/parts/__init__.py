"""What every section is made of: blocks, figures, what was read from the folder."""
