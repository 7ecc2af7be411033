"""Models, attacks, defences and data that were uploaded or named, and their files."""
