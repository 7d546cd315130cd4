"""What measures the speed and the sizes that we claim."""
