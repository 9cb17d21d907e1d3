"""The agent of one host: starts its rank again when that has failed, as ``torchrun`` does, whose elastic agent it is.

    python -m harness.backends.training_agent --every 10 --restarts 2 ARGUMENTS OF training_rank

All hosts' agents meet at ``R2CC_ROOT``, which is the store of their ranks, too. A rank keeps its checkpoints in files
without names that this process holds open, so nothing of them outlives it.
"""

import argparse
import os
import sys
import tempfile
from typing import NoReturn

from r2ccl_core.perf.stdin import end_with_stdin

OK, LOST = 0, 3
_LOOK_S = 0.1
"""How often it looks whether its rank is alive: torchrun's own default."""


def main() -> NoReturn:
    """Exits as the last life of the rank did: 0 ok, 3 lost."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from harness.backends.training_life import EVERY, LIVES, STATE

    parser = argparse.ArgumentParser(prog="training_agent", description=__doc__)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--restarts", type=int, required=True)
    args, rest = parser.parse_known_args()
    end_with_stdin()
    files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115  # open as long as this process lives
    paths = ":".join(f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in files)
    os.environ.update({STATE: paths, EVERY: str(args.every), LIVES: str(args.restarts + 1)})
    size, root = int(os.environ["R2CC_SIZE"]), os.environ["R2CC_ROOT"]
    config = LaunchConfig(
        min_nodes=size,
        max_nodes=size,
        nproc_per_node=1,
        run_id="training",
        rdzv_backend="c10d",
        rdzv_endpoint=root,
        rdzv_configs={"is_host": os.environ["R2CC_RANK"] == "0"},
        max_restarts=args.restarts,
        monitor_interval=_LOOK_S,
    )
    rank = [sys.executable, "-u", "-m", "harness.backends.training_rank", "--agent", *rest]
    code = OK
    try:
        elastic_launch(config, rank[0])(*rank[1:])
    except ChildFailedError:
        code = LOST
    os._exit(code)


if __name__ == "__main__":
    main()
