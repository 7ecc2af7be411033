"""Commands, one module for each group. A command parses its options, calls one function and prints the result."""
