"""What davylamp costs: time and memory beside bare calls."""
