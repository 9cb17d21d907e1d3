"""Clusters of virtual machines: hosts with kernels of their own."""
