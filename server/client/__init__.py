"""The same verbs from another machine: an HTTP client that needs nothing but Python."""
