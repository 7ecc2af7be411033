"""What the server remembers: its tables, how they are reached, and who may see which of their rows."""
