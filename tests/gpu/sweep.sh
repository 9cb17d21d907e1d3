#!/bin/sh
# Sweeps on a machine with GPUs and PyTorch that reaches no network; namespaces are hosts.
#
#     sh tests/gpu/sweep.sh KIT OUT ARGUMENTS...      as root, from a checkout; KIT is what tests/gpu/kit.sh made
#
# ARGUMENTS are those of `harness sweep`, such as experiments/nccl_plugin.toml. OUT gets the run folders as one archive.
# It changes the machine's Python and /usr: for one that is thrown away.
set -eu
kit=$1
out=$2
shift 2
sh tests/gpu/prepare.sh "$kit"

# Ranks of several hosts share a GPU where there are fewer GPUs: their kernels, which wait for each other, side by side.
if command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d; then
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi
runs=$(mktemp -d)
status=0
python3 -P -c 'import sys; from harness.commands.start import main; sys.exit(main())' sweep "$@" --out "$runs" || status=$?
tar -C "$runs" -czf "$out/runs.tar.gz" .
exit $status
