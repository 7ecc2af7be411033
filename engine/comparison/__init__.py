"""One attack through every library on the same images."""
