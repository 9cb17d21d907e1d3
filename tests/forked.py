"""Starts the ranks of jobs as forks of one process that has imported PyTorch, which takes a rank longer than its test.

    python forked.py JOBS

JOBS is JSON, a list of jobs after each other, each a list of ranks at the same time: `argv` is what a Python is given
(a file or `-m` a module, then arguments), `env` what its environment has besides, `out` the file of what it says, with
`errors` its standard error too. Its standard input is open and empty. Prints the exit statuses of every job's ranks.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch  # noqa: F401


def main() -> None:
    empty, ours = os.pipe()
    statuses = []
    for job in json.loads(sys.argv[1]):
        ranks = []
        for rank in job:
            process = os.fork()
            if process == 0:
                os.close(ours)
                become(rank, empty)
                return
            ranks.append(process)
        statuses.append([os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in ranks])
    print(json.dumps(statuses))


def become(rank: dict[str, Any], empty: int) -> None:
    """Returns as the program ends, so that the interpreter comes to its end as that of a process of its own."""
    out = os.open(rank["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(empty, 0)
    os.dup2(out, 1)
    if rank["errors"]:
        os.dup2(out, 2)
    os.environ.update(rank["env"])
    program, *words = rank["argv"]
    if program == "-m":
        program, *words = words
        sys.argv = [program, *words]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *words]
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
