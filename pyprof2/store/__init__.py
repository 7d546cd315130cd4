"""The store: a folder of Parquet files, written, read, checked, and taken in parts."""
