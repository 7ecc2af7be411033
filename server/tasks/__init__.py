"""Tasks: submission, leases, execution in separate processes, recording of results, and signatures."""
