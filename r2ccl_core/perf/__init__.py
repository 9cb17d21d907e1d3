"""The measuring program: nccl-tests' flags and columns over this project's own runtime."""

import os

# It does no linear algebra: a pool of BLAS threads would cost a third of its start-up and disturb what it measures.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
