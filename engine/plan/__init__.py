"""From a configuration to the plan of runs."""
