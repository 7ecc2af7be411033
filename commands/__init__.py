"""One module for each group of commands; a command parses, calls one function, prints."""
