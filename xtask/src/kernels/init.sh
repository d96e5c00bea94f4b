#!/bin/busybox sh
# The first program of a guest of `cargo xtask test-kernels`: mounts, loads modules, runs the checks
# one after the other and powers off.
export PATH=/usr/bin:/bin HOME=/root TMPDIR=/tmp
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t bpf bpf /sys/fs/bpf
for module in /modules/*; do insmod "$module"; done
ip link set lo up
cd /root
# Tests take turns: an emulated machine is slow enough for one.
run_tests() { tests=$1; shift; "$tests" --test-threads 1 --show-output "$@"; }
ebpf() { run_tests ebpf-tests "$@"; }
host() { run_tests host-tests "$@"; }
datapath() { run_tests datapath-tests "$@"; }
agent() { run_tests agent-tests "$@"; }
. /checks
poweroff -f
