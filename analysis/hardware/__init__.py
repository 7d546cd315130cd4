"""Hardware: what devices can do, what kernel names say, which units did the work."""
