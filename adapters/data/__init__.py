"""Images and labels: by name, from folders, from array files."""
