"""Users, passwords, sessions, tokens, and the log of who did what."""
