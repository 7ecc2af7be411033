"""Worker processes for models, attacks and data from files, sandboxed if possible. Their messages are checked."""
