"""The benchmarking and fault-injection harness: hosts, clusters, sweeps and the command line."""
