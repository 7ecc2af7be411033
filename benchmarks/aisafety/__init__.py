"""Tables of AISafety (Liu, Guo et al.)."""
