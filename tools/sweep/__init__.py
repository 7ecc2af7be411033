"""The main commands in all their forms, over attacks, norms, settings and models of every shape."""
