"""Workloads: what a trial runs, one kind a file. Collectives, training and serving are of equal standing."""
