#!/bin/sh
# Tests the OCI image $1 with podman, in its own network namespace. Both boxes must start with only the listed
# capabilities, answer, and remove everything that they made. Needs root, podman, crun, iproute2 and ethtool.
set -eu
image=$1
if [ -z "${WITHIN:-}" ]; then
    WITHIN=1 exec unshare --net --mount sh "$0" "$(realpath "$image")"
fi
mount --make-rprivate /
# crun needs the unified hierarchy of control groups, even if this machine uses another.
umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
capabilities=$(cat "$(dirname "$0")/capabilities")
work=$(mktemp -d)
podman() { command podman --storage-driver vfs --root "$work/store" --runroot "$work/run" --cgroup-manager cgroupfs "$@"; }
trap 'podman rm --all --force --time 0 >/dev/null 2>&1 || :; podman rmi --all --force >/dev/null 2>&1 || :; rm -rf "$work"' EXIT
fail() {
    echo "error: $*" >&2
    exit 1
}

ip link set dev lo up
ip link add br0 type bridge
for port in lan0 wan0; do
    ip link add $port type veth peer name beyond-$port
    ip link set dev $port master br0 up
    ip link set dev beyond-$port up
done
ip link set dev br0 up
ip address add 10.1.1.2/24 dev br0
ip route add default via 10.1.1.254
ethtool -K wan0 rxvlan off

loaded=$(podman load --quiet --input "$image" | sed 's/^Loaded image[^:]*: *//')
mkdir "$work/forebay"
# Uses this machine's limits, since podman's defaults may exceed them.
in_image() {
    podman run --ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit nproc=4096:4096 --cgroups=disabled --network host \
        --security-opt seccomp=unconfined --cap-drop all --cap-add "$capabilities" \
        --volume "$work/forebay:/etc/forebay" "$@"
}
to=10.2.0.0/16 from=10.1.1.0/24
in_image --rm "$loaded" init sendbox --peer 203.0.113.9 --to $to --from $from --lan lan0 --wan wan0 --name send >/dev/null
in_image --rm "$loaded" init receivebox --peer 203.0.113.9 --from $to --to $from --wan wan0 --name receive \
    --key /etc/forebay/send.key >/dev/null
for box in sendbox:send receivebox:receive; do
    in_image --rm "$loaded" check-config /etc/forebay/${box#*:}.toml
    in_image --detach --name ${box#*:} "$loaded" ${box%:*} --config /etc/forebay/${box#*:}.toml >/dev/null
done
for name in send receive; do
    tries=100
    until podman exec --user forebay $name forebay status >"$work/status" 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "$name does not answer: $(cat "$work/status") $(podman logs $name 2>&1)"
        sleep 0.1
    done
    head -n 1 "$work/status"
    who=$(podman exec $name cat /proc/1/status)
    echo "$who" | grep -q '^CapBnd:.*0000000000000000$' || fail "$name keeps capabilities: $who"
    ! echo "$who" | grep -q '^Uid:.[[:space:]]*0' || fail "$name is root"
done
tc qdisc show dev wan0 | grep -q '^qdisc htb' || fail "no queues at wan0: $(tc qdisc show dev wan0)"
podman stop --time 10 send receive >/dev/null
! tc qdisc show dev wan0 | grep -q htb || fail "left over: $(tc qdisc show dev wan0)"
echo "$loaded: both boxes ran with $capabilities"
