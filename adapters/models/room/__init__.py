"""A model in a process of its own, in a sandbox where there is one: what it says is checked, never unpickled."""
