#!/bin/sh
# Hosts of several ranks on a machine with GPUs that reaches no network, such as one with a single GPU: the schedules of
# libr2ccl-preload.so for four hosts of two ranks, against NCCL's ring, with rails lost; types; what is refused.
#
#     sh tests/gpu/several.sh KIT OUT [SECONDS] [ARGUMENTS...]     as root, from a checkout; KIT: of tests/gpu/kit.sh
#
# Ranks share a GPU by the Multi-Process Service. NCCL takes two ranks of one host on one GPU for a mistake, so it takes
# every rank for a host; we are told who shares NICs (R2CC_HOSTID), and ranks of one host meet over a bridge without a
# rate in NVLink's place. OUT gets the campaign's results.jsonl, results.md and campaign.tar.gz, and several.log. Ends
# within SECONDS (380), whatever hangs; the exit status is the campaign's, 124 where it was stopped.
set -eu
kit=$1
out=$2
seconds=${3:-380}
[ $# -ge 3 ] && shift 3 || shift 2
mkdir -p "$out"
out=$(cd "$out" && pwd)
site=$(mktemp -d)
python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --target "$site" \
    "$kit"/wheels/pyroute2-*.whl
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
{ nvidia-smi -L; nvcc --version | tail -1; uname -r; nproc; cat /proc/loadavg; } >"$out/machine.txt" 2>&1 || true
# BBR takes every stream down for 0.2 s every ten seconds.
grep -qw reno /proc/sys/net/ipv4/tcp_available_congestion_control && set -- --congestion-control reno "$@"
status=0
# The campaign counts its own time; what it cannot end, timeout does.
timeout -k 5 "$((seconds - 8))" python3 tests/gpu/campaign.py "$out" --hosts 4 --ranks 2 --rate 0.5 \
    --seconds "$((seconds - 25))" --only several,types,refusals "$@" \
    >"$out/several.log" 2>&1 || status=$?
cat "$out/results.md" 2>/dev/null || true
echo "exit status $status; the end of several.log:"
tail -n 25 "$out/several.log" | cut -c1-400
exit $status
