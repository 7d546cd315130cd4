"""Start, time and end recordings: scripts, entry points, batch sizes; `nvtx` marks."""
