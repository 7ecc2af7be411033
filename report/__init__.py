"""What a person sees: tables on a terminal, plain text in a pipe, documents for programs."""
