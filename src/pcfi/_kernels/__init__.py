"""Compiled kernels: free functions, arrays in, preallocated arrays out. Slow twins are in `reference`."""
