"""Pages and the JSON interface, over HTTP."""
