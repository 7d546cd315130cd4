"""Questions of agents: the six tools of `pyprof2 mcp`, over recordings in folders that it is given.

Each answer is small and has the form of `pyprof2.reports.files`; every number in it is made by
the functions that the commands use.
"""
