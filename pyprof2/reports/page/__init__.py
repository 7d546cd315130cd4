"""The page of `pyprof2 report`: one HTML file with all that the other commands print.

`document.py` puts together what the page shows, a module for each of its parts; `html.py` makes
the file of it. `docs/report-data.rst` says what
the program on the page may rely on.
"""
