"""Commands, one module per group. Each parses its options, calls one function and prints the result."""
