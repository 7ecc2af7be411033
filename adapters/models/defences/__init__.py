"""Named defences: transformations of the input, most of them from libraries, and changes of the model itself."""
