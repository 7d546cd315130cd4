"""The output for people and programs: one module per kind.

A report takes a run and a query object, which says what is asked and which columns that needs;
it writes to a file or to stdout. The command line parses arguments into a query and calls.
"""
