"""Tasks: submission, leases, execution by the engine in separate processes, ingestion and signing."""
