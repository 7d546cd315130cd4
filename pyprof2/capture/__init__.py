"""What starts, times and ends recordings: scripts, entry points, batch sizes; `nvtx` marks."""
