"""Inference servers: the batches that they name in a recording, and the steps that ran them."""
