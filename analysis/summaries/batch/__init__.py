"""Time and memory at a batch size that was not tried, from recordings at others."""
