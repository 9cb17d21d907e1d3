"""The measuring program: nccl-tests' flags and columns over this project's own runtime."""
