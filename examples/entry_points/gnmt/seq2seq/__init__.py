"""A translator with attention."""
