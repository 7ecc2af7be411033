"""What detectors see of attacks that know them and of attacks that do not."""
