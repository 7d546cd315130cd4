"""Linking: launches to ops, ops to ops, layers, lines, steps and ranges, backward to forward."""
