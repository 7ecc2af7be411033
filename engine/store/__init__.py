"""Results folders: their files, and the data structures with which commands and reports read them.

These modules write and validate files:

- `atomic_files`: atomic writing of files.
- `checksummed`: Parquet files with a checksum.
- `store`: the results folder.
- `record_validation`: validation of records.
- `columns`, `stored_columns`: conversion of columns to tensors and arrays.
- `plan_records`: states of evaluations.

These modules read a folder:

- `results`: a folder in memory, for tables, curves, indicators and pages.
- `image_results`: the result of an attack on each image.
- `transfers`, `shown`, `derived_columns`: transfers and further metrics.
- `data_frames`: pandas tables.
- `notes`: sentences that are printed with results.
- `other_records`: fitted attacks, corruptions and detections.
- `imported`: results of other programs.
"""
