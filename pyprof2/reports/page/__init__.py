"""The page of `pyprof2 report`: one HTML file with all that the other commands print.

`document.py` puts the data together, with a module for each part of the page; `html.py` makes the
file. The program that draws it is in `web/report`, a file of `tabs` for each tab;
`docs/report-data.rst` describes the data for it.
"""
