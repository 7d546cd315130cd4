"""Summaries: what people read, from the canonical tables."""
