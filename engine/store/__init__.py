"""Results folders: their files, and the read model that every view uses.

Files: `atomic_files` writes files atomically, `checksummed` has Parquet files with a checksum, `store` the folder,
`record_validation` validates records, `columns` and `stored_columns` convert columns to tensors and arrays, and
`plan_records` holds the states of evaluations.

Reading: `results` reads a folder for tables, curves, checks and pages, and `image_results` decides the result of an
attack on each image. `transfers`, `shown` and `derived_columns` add to it, `data_frames` has its pandas tables,
`notes` its sentences. `other_records` has fits, corruptions and detections, `imported` the results of other programs.
"""
