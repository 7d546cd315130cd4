"""Time: the windows of steps and of recordings."""
