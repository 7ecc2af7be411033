"""Models, attacks, defences and data that were uploaded or named, and the bytes of their files."""
