"""From a configuration to the cells that are to be run."""
