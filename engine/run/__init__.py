"""Running a plan: tasks, workers, per-image metrics, and the index of finished runs."""
