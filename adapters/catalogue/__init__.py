"""The catalogue: canonical attacks, the vocabulary of parameters, every library's rows and their findings."""
