"""Users, passwords, sessions, tokens, and the audit log."""
