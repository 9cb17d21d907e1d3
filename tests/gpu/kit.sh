#!/bin/sh
# What `harness sweep` needs on a machine with GPUs that reaches no network: wheels and Debian packages, in one folder.
#
#     sh tests/gpu/kit.sh FOLDER [PYTHON]     PYTHON: the version there, such as 3.12 (the default)
#
# Run it as root where packages can be fetched, take the folder along, and run prepare.sh or sweep.sh there.
set -eu
folder=$1
python=${2:-3.12}
mkdir -p "$folder/wheels" "$folder/debs"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version "$python" \
    --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux1_x86_64 --dest "$folder/wheels" \
    annotated-types bcrypt cffi cryptography decorator deprecated fabric invoke ml_dtypes nvidia-ml-py paramiko \
    pycparser pydantic pydantic-core pynacl pyroute2 shellingham typing-inspection
cd "$folder/debs"
apt-get download --quiet \
    ethtool iproute2 iputils-ping libbpf1 libcom-err2 libcrypt1 libdb5.3 libelf1 libgssapi-krb5-2 libk5crypto3 \
    libkeyutils1 libkrb5-3 libkrb5support0 libmnl0 libnsl2 libtirpc3 libwrap0 libxtables12 openssh-client \
    openssh-server openssh-sftp-server
