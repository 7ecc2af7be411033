"""Web pages and JSON interface."""
