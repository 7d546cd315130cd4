"""What people and programs get to see: one module per kind of output.

A report takes a run and a query object, which says what is asked and which columns that needs;
it writes to a file or to stdout. The command line parses arguments into a query and calls.
"""
