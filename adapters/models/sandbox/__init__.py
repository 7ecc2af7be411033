"""Worker processes for models, attacks and data of files, sandboxed where possible: what they send is checked."""
