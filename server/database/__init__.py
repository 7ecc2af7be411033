"""Database of a server: tables, connections and permissions."""
