"""Provides nccl-tests if the user asks for them: in a folder on the hosts, or from an installed package."""

from harness.setup.base import Done, Seen, Stage, State, Stuck, Unneeded


def judge(seen: Seen) -> State:
    """They are looked for, never built: the NCCL and the MPI that they are built for are the user's choice."""
    wanted, found = seen.options.nccl_tests, seen.facts["nccl_tests"]
    if wanted is None:
        return Unneeded("not asked for; --nccl-tests names a folder on the hosts, or a package")
    if found is None:
        kind = "folder with all_reduce_perf" if wanted.startswith("/") else "installed package with all_reduce_perf"
        return Stuck(f"{wanted} is not a {kind}", "build nccl-tests there (make MPI=1), or install the package")
    return Done(f'workload.nccl_tests = "{found}"')


STAGE = Stage("nccl_tests", "finds nccl-tests, where they are asked for", "stays", judge)
