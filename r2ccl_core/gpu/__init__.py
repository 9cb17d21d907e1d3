"""Schedules on GPUs, as rounds of NCCL's point-to-point calls, for PyTorch programs and under LD_PRELOAD."""
