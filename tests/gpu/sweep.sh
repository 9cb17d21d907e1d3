#!/bin/sh
# Brings the harness to a machine with GPUs and PyTorch that reaches no network, and sweeps there; namespaces are hosts.
#
#     sh tests/gpu/sweep.sh KIT OUT ARGUMENTS...      as root, from a checkout; KIT is what tests/gpu/kit.sh made
#
# ARGUMENTS are those of `harness sweep`, such as experiments/nccl_plugin.toml. OUT gets the run folders as one archive.
# It changes the machine's Python and /usr: for one that is thrown away.
set -eu
kit=$1
out=$2
shift 2
say() { echo "sweep: $*" >&2; }

say "packages"
unpacked=$(mktemp -d)
for package in "$kit"/debs/*.deb; do dpkg -x "$package" "$unpacked"; done
# Only what is missing: whatever the machine has is of one piece with the rest of it.
for program in sbin/ip bin/ip sbin/tc bin/ss usr/sbin/sshd usr/bin/ssh usr/bin/ssh-keygen usr/bin/ping usr/bin/ping4 \
    usr/sbin/ethtool sbin/ethtool bin/ping usr/lib/openssh/sftp-server usr/bin/ssh-add usr/bin/ssh-agent; do
    there="/usr/${program#usr/}"
    if [ -e "$unpacked/$program" ] && [ ! -e "$there" ]; then
        mkdir -p "${there%/*}"
        cp -L "$unpacked/$program" "$there"
    fi
done
known=$(ldconfig -p)
find "$unpacked" -path '*x86_64-linux-gnu/*.so.*' | while read -r library; do
    case $known in
    *"${library##*/} "*) ;;
    *) cp -L "$library" /usr/local/lib/ ;;
    esac
done
ldconfig
id sshd >/dev/null 2>&1 || useradd --system --no-create-home --home-dir /run/sshd --shell /usr/sbin/nologin sshd
mkdir -p /run/sshd

say "Python packages"
python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$kit"/wheels/*.whl
say "the core and the harness"
export CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)"
python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation .

# Ranks of several hosts share a GPU where there are fewer GPUs: their kernels, which wait for each other, side by side.
if command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d; then
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi
runs=$(mktemp -d)
status=0
python3 -P -c 'import sys; from harness.commands.start import main; sys.exit(main())' sweep "$@" --out "$runs" || status=$?
tar -C "$runs" -czf "$out/runs.tar.gz" .
exit $status
