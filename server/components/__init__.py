"""Models, attacks, defences and data that users upload or give by name, and their files."""
