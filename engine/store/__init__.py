"""A results folder: its files, and the one read model that every view is made of.

Files: `files` writes whole or not at all, `sealed` is a Parquet file with a checksum, `store` the folder, `contents`
validates records, `columns` and `stored_columns` turn columns into tensors and arrays, `plans` holds the states of
evaluations.

Reading: `outcomes` reads a folder for tables, curves, checks and pages, and `image_results` decides the result of an
attack on each image; `transfers` and `derived_columns` add to it, `data_frames` has its pandas tables, `notes` its
sentences. `other_records` has fittings, corruptions and detections, `imported` the results of other programs.
"""
