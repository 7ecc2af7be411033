"""Running a plan: tasks, workers, the measures of each image, and the ledger of what is finished."""
