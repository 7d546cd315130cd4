"""Reports in the forms of Skyline and DeepView, for the programs that read those."""
