"""A classifier offered to others by the Open Inference Protocol, over HTTP."""
