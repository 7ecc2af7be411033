"""A server that a lab puts up: components, tasks, leaderboards, accounts; nothing else imports it."""
