"""The server's database: tables, connections and permissions."""
