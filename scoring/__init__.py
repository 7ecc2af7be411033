"""Rankings of models, attacks and defences by item response theory; imports nothing else of the project."""
