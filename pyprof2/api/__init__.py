"""The Python API: questions to a store, one run or many."""
