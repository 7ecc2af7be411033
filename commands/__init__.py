"""The commands of the command line. Each command parses its options, calls one function and prints the result."""
