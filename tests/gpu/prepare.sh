#!/bin/sh
# Brings the core and the harness to a machine with GPUs and PyTorch that reaches no network.
#
#     sh tests/gpu/prepare.sh KIT      as root, from a checkout; KIT is what tests/gpu/kit.sh made
#
# It changes the machine's Python and /usr: for one that is thrown away.
set -eu
kit=$1
say() { echo "prepare: $*" >&2; }

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
