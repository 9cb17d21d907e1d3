"""Stands in for a build of nccl-tests where there is no GPU: prints its columns, a row a cycle, at its pace.

Installed as BUILD/all_reduce_perf. As a build with MPI, only its first process prints, what all of them are.
REPLAY_FAULT says what goes wrong: ``wrong``, ``lost``, ``mute``, ``old``, ``no_mpi``.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

USAGE = """USAGE: all_reduce_perf
\t[-N,--run_cycles <cycle count> run & print each cycle (default: 1; 0=infinite)]
\t[-J,--output_file <file> write output to filepath, if accessible.]
\t[-h,--help]"""
CYCLE_S = 0.06


def main() -> int:
    fault = os.environ.get("REPLAY_FAULT", "")
    if "--help" in sys.argv:
        print("USAGE: all_reduce_perf" if fault == "old" else USAGE)
        return 0
    parser = argparse.ArgumentParser()
    for flag in "benwcdoagrJT":
        parser.add_argument(f"-{flag}")
    parser.add_argument("-N", type=int)
    args = parser.parse_args()
    own, ranks = (
        int(os.environ.get(f"OMPI_COMM_WORLD_{name}", default)) for name, default in (("RANK", 0), ("SIZE", 1))
    )
    if fault == "no_mpi":
        own, ranks = 0, 1
    if own > 0:
        time.sleep(CYCLE_S * (args.N + 2))
        return 0
    say("# nccl-tests version 2.18.3 nccl-headers=22907 nccl-library=22907")
    for rank in range(int(args.g) * ranks):
        say(f"#  Rank {rank:2} Group  0 Pid    100 on      host0 device {rank:2} [0000:18:00] NVIDIA H100")
    say("host0:100:107 [0] NCCL INFO Using network Socket")
    say("host0:100:107 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0")
    say("#       size         count      type   redop    root     time   algbw   busbw  #wrong")
    say("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)        ")
    size, rows = int(args.b), []
    for cycle in range(args.N):
        time.sleep(CYCLE_S)
        if fault == "mute" and cycle == 2:
            time.sleep(60)
        if fault == "lost" and cycle == 2:
            say(f"{size:12}  {size // 4:12}     float     sum      -1host0: Test NCCL failure common.cu:621 'lost'")
            say(" .. host0 pid 100: Test failure common.cu:540")
            return 3
        wrong = 5 if fault == "wrong" and cycle == 2 else 0
        place = f"  10000.0    0.84    0.84  {wrong:6}"
        say(f"{size:12}  {size // 4:12}     float     sum      -1{place}{place}")
        rows.append({"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"})
    say(f"# Out of bounds values : {int(fault == 'wrong')} {'FAILED' if fault == 'wrong' else 'OK'}")
    say("# Avg bus bandwidth    : 0.84 ")
    with Path(args.J).open("x") as file:
        json.dump({"version": 3, "nccl_version": 22907, "env": ["SECRET=never-tell"], "results": rows}, file)
    return 3 if fault == "wrong" else 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
