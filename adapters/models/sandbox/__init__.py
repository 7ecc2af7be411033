"""Worker processes for models, attacks and data from files, in a sandbox if possible."""
