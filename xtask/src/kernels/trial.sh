# What an operator does with the package, step by step: sourced as root in a guest that systemd runs. Each step ends with
# an error where something is not as it should be; what it tells to be kept begins with "=> ".
#
#   a: 10.1.1.1 ── lan0 [br0 10.1.3.1] wan0 ── middle ── wan0 [b: br0 10.1.3.2] lan0 ── far: 10.1.2.1
#                    sendbox                 $MBPS Mbit/s        receivebox
SENDBOX=forebay-sendbox@site-a
RECEIVEBOX=forebay-receivebox@site-b

# A container has none.
if systemd-detect-virt --quiet --container; then
    mkdir -p /sys/fs/bpf
    mount -t bpf bpf /sys/fs/bpf
fi

# Says what went wrong, with what the boxes said.
wrong() {
    echo "wrong: $*"
    journalctl --no-pager -n 40 -u 'forebay-*'
    return 1
}

# What a package could leave behind: devices and their programs, names of congestion controls, users, files.
machine() {
    for place in '' '-n b'; do
        # shellcheck disable=SC2086 # two words or none
        ip $place -o link | sed 's/^[0-9]*: //; s/ qlen.*//; s/prog.xdp id [0-9]*/xdp/' | grep -o '^[^:]*\|xdp'
        # shellcheck disable=SC2086
        tc $place qdisc show
    done
    bpftool -j prog show | jq -r '.[] | select(.type | startswith("cgroup") | not) | .type + " " + .name' | sort
    bpftool -j map show | jq -r '.[] | .type + " " + .name' | sort
    bpftool -j link show | jq -r '.[] | .type' | sort
    cat /proc/sys/net/ipv4/tcp_available_congestion_control /etc/passwd /etc/group /etc/shadow
    find /sys/fs/bpf /run -path /run/forebay -o -path '/sys/fs/bpf/*'
    find / -xdev \( -path /tmp -o -path /trial -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg \
        -o -path /var/lib/systemd -o -name '*-' -o -name .pwd.lock \) -prune -o -printf '%p %y %m %u %g\n' | sort
}

# Process and state of the sendbox.
box() {
    forebay status --socket /run/forebay/sendbox.sock --json 2>/dev/null |
        jq -r '.boxes[0] | "\(.pid) \(.bundles[0].shaping.decision.state)"' 2>/dev/null
}

now_ms() { date +%s%3N; }

# Whether a sendbox in state $1 limits its bundle to the rate of the path. This includes a box that drains or has little
# to send: on an emulated machine the status comes too seldom to wait for one of these states.
holds() { case $1 in '' | null | no_peer | no_reports | unsteady | measuring | competing | passing | trying) false ;; esac }

# Waits until a sendbox other than that of process $1 shapes; answers for how long nobody did (ms).
await_shaping() {
    last=$(now_ms) begun=$last
    while seen=$(box); ! holds "${seen#* }" || [ "${seen% *}" = "$1" ]; do
        holds "${seen#* }" && last=$(now_ms)
        [ $(($(now_ms) - begun)) -lt $((LONG * 2000)) ] || return 1
        sleep 0.05
    done
    echo $(($(now_ms) - last))
}

# Two connections that together send more than the path carries, and numbered datagrams, for $1 seconds.
traffic() {
    # A step that failed leaves its own.
    pkill -f 'iperf3 -J' || true
    ip netns exec a iperf3 -J -c 10.1.2.1 -p 5201 -t "$1" -P 2 -b "$((MBPS * 3 / 4))M" >/trial/tcp.json &
    ip netns exec a iperf3 -J -c 10.1.2.1 -p 5202 -t "$1" -u -b "$((MBPS * 25))k" -l 250 >/trial/udp.json &
}

# What became of traffic that has ended: no connection may have been reset, and of datagrams it is told.
arrived() {
    jq -e 'has("error") | not' /trial/tcp.json >/dev/null || wrong "$(jq .error /trial/tcp.json)"
    jq -r '.end.sum | "\(.lost_packets) of \(.packets) datagrams lost"' /trial/udp.json
    jq -e '.end.sum.packets > 100' /trial/udp.json >/dev/null || wrong "$(jq .error /trial/udp.json)"
}

# An emulated machine needs longer than a real one, and forwards a few Mbit/s: on a faster path no queue would stand
# behind the box, which would rightly not shape.
is_emulated() { [ "$(systemd-detect-virt)" = qemu ]; }
if is_emulated; then LONG=120 MBPS=4; else LONG=30 MBPS=16; fi

installed() (
    set -e
    for place in a middle b far; do ip netns add $place; done
    ip link add lan0 type veth peer name eth0 netns a
    ip link add wan0 type veth peer name lan0 netns middle
    ip -n middle link add wan0 type veth peer name wan0 netns b
    ip -n b link add lan0 type veth peer name eth0 netns far
    for place in '' '-n middle' '-n b'; do
        # shellcheck disable=SC2086
        ip $place -batch - <<END
link add br0 type bridge forward_delay 0
link set lan0 master br0
link set wan0 master br0
link set lan0 up
link set wan0 up
link set br0 up
END
    done
    ip address add 10.1.3.1/16 dev br0
    ip -n b address add 10.1.3.2/16 dev br0
    ip -n a address add 10.1.1.1/16 dev eth0
    ip -n far address add 10.1.2.1/16 dev eth0
    ip -n a link set eth0 up
    ip -n far link set eth0 up
    # What comes too fast waits, and is not lost.
    tc -n middle qdisc add dev wan0 root tbf rate ${MBPS}mbit burst 20kb limit 8mb
    off='tso off gso off gro off tx off txvlan off rxvlan off'
    for device in lan0 wan0; do
        # shellcheck disable=SC2086
        ethtool -K $device $off
        # shellcheck disable=SC2086
        for place in middle b; do ip netns exec $place ethtool -K $device $off; done
    done
    # shellcheck disable=SC2086
    for place in a far; do ip netns exec $place ethtool -K eth0 $off; done
    sleep 2
    ip netns exec a ping -c 2 10.1.2.1
    mkdir -p /etc/credstore.encrypted
    machine >/trial/before
    dpkg -i /trial/1.deb
    getent passwd forebay
    [ "$(stat -c %U:%G:%a /run/forebay)" = root:forebay:775 ] || wrong "$(stat /run/forebay)"
    forebay --version
    packed=$(find /usr/share/doc/forebay/docs -name '*.gz')
    [ -z "$packed" ] || wrong "documents refer to each other by name: $packed"
    systemd-analyze verify --man=no "$SENDBOX.service" "$RECEIVEBOX.service" forebay-agent@cubic.service
    [ -z "$(systemctl list-units --plain --no-legend 'forebay-*')" ] && echo "nothing runs"
)

# Installs and removes only the package with the experiments.
laboratory() (
    set -e
    said=$(forebay run bundler/main 2>&1) && wrong "it runs without its package"
    echo "$said" | grep -q 'needs the package forebay-experiments' || wrong "$said"
    dpkg -i /trial/laboratory.deb
    forebay list plans | grep -q "^bundler/main " || wrong "it does not run"
    [ "$(dpkg-deb -f /trial/laboratory.deb Depends | grep -c 'forebay (= 1.0.1)')" = 1 ] || wrong "of any version"
    ! dpkg -L forebay-experiments | grep systemd || wrong "it has units"
    dpkg -P forebay-experiments
    [ ! -e /usr/libexec/forebay ] || wrong "something is left"
    echo "a package of its own"
)

started() (
    set -e
    forebay keygen /etc/forebay/site.key
    # The receivebox has its key encrypted.
    systemd-creds encrypt --with-key=host --name=forebay.site-b.key /etc/forebay/site.key \
        /etc/credstore.encrypted/forebay.site-b.key
    sed '/^\[box\]/,$ { s/192.0.2.2/10.1.3.1/; s/198.51.100.2"/10.1.3.2"/; s,198.51.100.0/24,10.1.2.0/24,
        s/bundle.key/site.key/; s/^# max_rate.*/max_rate = "20Mbit\/s"/ }' /etc/forebay/sendbox.toml \
        >/etc/forebay/site-a.toml
    sed '/^\[box\]/,$ { s/198.51.100.2"/10.1.3.2"/; s/192.0.2.2"/10.1.3.1"/; s,198.51.100.0/24,10.1.2.0/24,
        s,192.0.2.0/24,10.1.1.0/24,; s,bundle.key,/run/credentials/'$RECEIVEBOX'.service/forebay.site-b.key, }' \
        /etc/forebay/receivebox.toml >/etc/forebay/site-b.toml
    forebay check-config /etc/forebay/site-a.toml
    forebay doctor --config /etc/forebay/site-a.toml
    mkdir -p "/etc/systemd/system/$RECEIVEBOX.service.d"
    printf '[Service]\nNetworkNamespacePath=/run/netns/b\n' >"/etc/systemd/system/$RECEIVEBOX.service.d/site.conf"
    systemctl daemon-reload
    systemctl enable --now "$RECEIVEBOX" "$SENDBOX" || wrong "they do not start"
    systemctl is-active "$RECEIVEBOX" "$SENDBOX" || wrong "they do not run"
    systemd-analyze security --no-pager --threshold=35 "$SENDBOX" | tail -n 1
    # Who is left in the main process, and what root could still do there.
    main=$(systemctl show --value -p MainPID "$SENDBOX")
    grep -h '^Uid\|^NoNewPrivs\|^Seccomp:\|^CapEff' "/proc/$main/status"
    [ "$(awk '/^Uid/ { print $3 }' "/proc/$main/status")" = "$(id -u forebay)" ] || wrong "the sendbox is root"
    echo "both boxes run"
)

shaped() (
    set -e
    ip netns exec far iperf3 -s -D -p 5201
    ip netns exec far iperf3 -s -D -p 5202
    sleep 1
    traffic $((LONG / 2))
    await_shaping 0 || wrong "nothing is shaped"
    box
    wait
    arrived
    forebay status
    jq -r --arg path "$MBPS" \
        '.end.sum_received.bits_per_second / 1e5 | "=> shaping; TCP had \(round / 10) Mbit/s of \($path)"' \
        /trial/tcp.json
)

reloaded() (
    set -e
    before=$(box)
    sed -i 's/^max_rate.*/max_rate = "19Mbit\/s"/' /etc/forebay/site-a.toml
    systemctl reload "$SENDBOX"
    sleep 1
    [ "$(box | cut -d ' ' -f 1)" = "${before% *}" ] && echo "same process"
    forebay status --socket /run/forebay/sendbox.sock --json |
        jq -e '.boxes[0].bundles[0].shaping.max_rate_bps == 19000000' || wrong "it did not reload"
)

# Does $2.. to the sendbox under traffic of $1 seconds.
struck() (
    set -e
    long=$1 && shift
    traffic "$long"
    await_shaping 0 >/dev/null || wrong "nothing is shaped"
    old=$(box)
    "$@"
    unshaped=$(await_shaping "${old% *}") || wrong "nothing is shaped again"
    wait
    lost=$(arrived) || wrong "$lost"
    echo "=> unshaped for $unshaped ms, $lost, no connection reset"
)

killed() { struck $LONG systemctl kill -s KILL "$SENDBOX"; }

# The watchdog finds a box that does nothing.
hung() { struck $((LONG * 2)) systemctl kill -s STOP "$SENDBOX"; }

# The package $1 replaces the installed one.
exchange() (
    set -e
    # It takes the processor of an emulated machine for two to six minutes; boxes run on meanwhile.
    if is_emulated; then dpkg --unpack "/trial/$1.deb"; fi
    told=$(struck $((LONG * 2)) replace "$1") || wrong "$told"
    echo "$told"
    unshaped=$(echo "$told" | sed -n 's/^=> unshaped for \([0-9]*\) ms.*/\1/p')
    is_emulated || [ "$unshaped" -le 5000 ] || wrong "more than 5 s"
    is_emulated || echo "$told" | grep -q ' ms, 0 of ' || wrong "datagrams are lost"
    [ "$(dpkg-query -W -f '${Version}' forebay)" = "1.0.$1" ] || wrong "$(cat /trial/dpkg.log)"
)

# The box is watched meanwhile.
replace() {
    if is_emulated; then set -- --configure forebay; else set -- -i "/trial/$1.deb"; fi
    dpkg "$@" >/trial/dpkg.log 2>&1 &
}

refused() (
    set -e
    old=$(box | cut -d ' ' -f 1)
    cp /etc/forebay/site-a.toml /trial/good.toml
    sed -i 's/^cc .*/cc = "nonesuch"/' /etc/forebay/site-a.toml
    dpkg -i /trial/2.deb 2>&1
    [ "$(box | cut -d ' ' -f 1)" = "$old" ] || wrong "it was started again"
    cp /trial/good.toml /etc/forebay/site-a.toml
)

no_agent() (
    ! systemctl start forebay-agent@cubic
    journalctl --no-pager -u forebay-agent@cubic
    # systemd would start it again for a while.
    systemctl stop forebay-agent@cubic
)

agent() (
    set -e
    systemctl start forebay-agent@cubic || wrong "it does not start"
    ip netns exec far iperf3 -s -D -p 5203 -1
    sleep 1
    ip netns exec a iperf3 -c 10.1.2.1 -p 5203 -t 5 -C fb_cubic || wrong "no connection selects it"
    forebay status --socket /run/forebay/agent-fb_cubic.sock
    # Kept for the next agent, and removed with the package.
    systemctl restart forebay-agent@cubic || wrong "it does not start again"
    ls /sys/fs/bpf/forebay-cubic
)

removed() (
    set -e
    traffic $((LONG / 2))
    sleep 2
    dpkg -r forebay
    wait
    lost=$(arrived) || wrong "$lost"
    is_emulated || [ "${lost%% *}" = 0 ] || wrong "$lost"
    ! pgrep forebay || wrong "something runs"
    echo "=> $lost, the kernel forwards"
)

purged() (
    set -e
    dpkg -P forebay
    # What the operator made of the package's word, and what carried the traffic.
    pkill iperf3 || true
    rm -r "/etc/systemd/system/$RECEIVEBOX.service.d" /etc/credstore.encrypted/*
    systemctl daemon-reload
    sleep 2
    machine >/trial/after
    diff /trial/before /trial/after || wrong "something is left"
    echo "=> devices, qdiscs, programs, maps, links, users and files as before"
)
