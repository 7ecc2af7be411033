"""Models, attacks, defences and data that were uploaded or given by name, and their files."""
