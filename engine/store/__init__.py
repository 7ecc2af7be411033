"""Results folders: their files, and the data structures with which commands and reports read them.

Files: `atomic_files` writes files atomically, and `checksummed` writes Parquet files with a checksum. `store` is the
folder, `record_validation` validates records, `columns` and `stored_columns` convert columns to tensors and arrays, and
`plan_records` records the states of evaluations.

Reading: `results` reads a folder for tables, curves, indicators and pages, and `image_results` determines the result of
an attack on each image. `transfers`, `shown` and `derived_columns` add transfers and further metrics. `data_frames`
makes pandas tables, and `notes` writes the sentences that are printed with results. `other_records` has fits,
corruptions and detections, `imported` the results of other programs.
"""
