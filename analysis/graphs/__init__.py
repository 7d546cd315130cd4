"""Replays of CUDA and HIP graphs: which captured or eager launches their kernels come from."""
