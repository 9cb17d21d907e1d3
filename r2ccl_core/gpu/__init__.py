"""Schedules on GPUs: as rounds of NCCL's point-to-point calls, for programs in PyTorch and under LD_PRELOAD."""
