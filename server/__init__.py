"""Server for a lab: components, tasks, leaderboards and accounts. No other package imports it."""
