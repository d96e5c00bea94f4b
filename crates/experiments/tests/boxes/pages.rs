//! The commands of the pages on gateways, as an operator types them at two sites. The shells run in network namespaces,
//! with `/etc` and `/run` of their own. `systemctl` starts the box of the unit, and `scp` copies a file to the other
//! site.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;

use crate::alone;
use crate::by_hand::ip;
use crate::two_bundles::await_both;

/// Most words of a page.
const WORDS_MAX: usize = 500;

/// First lines of a site's shell. The shell is the first process of its PID namespace; all its processes end with it.
const PRELUDE: &str = r#"
exec 2>&1
mount -t overlay overlay -o lowerdir=/etc,upperdir="$SITE/etc",workdir="$SITE/work" /etc
mkdir -p /etc/forebay /etc/wireguard
mount --bind "$SITE/run" /run
systemctl() {                               # enable --now forebay-ROLE@NAME
    local unit=$3 role=${3#forebay-}
    "$FOREBAY" ${role%%@*} --config "/etc/forebay/${unit#*@}.toml" 2>"$SITE/$role.log" &
}
scp() { cp -p "$2" "$OTHER/"; }
sysctl() {                                  # all files of this machine would change more than its network
    if [ "$2" = --system ]; then set -- -q -p /etc/sysctl.d/90-forebay.conf; fi
    command sysctl "$@"
}
forebay() { "$FOREBAY" "$@"; }
set -eE
trap 'echo "@@failed $BASH_COMMAND"' ERR
"#;

/// A site: the namespace of its gateway, and a shell in it.
struct Site {
    folder: PathBuf,
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Site {
    fn open(namespace: &Namespace, folder: PathBuf, other: &Path) -> Self {
        for below in ["etc", "work", "run"] {
            fs::create_dir_all(folder.join(below)).unwrap();
        }
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]);
        shell.env("SITE", &folder).env("OTHER", other);
        shell.env("FOREBAY", env!("CARGO_BIN_EXE_forebay-experiments"));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        namespace.host(&mut shell).unwrap();
        let mut shell = shell.spawn().unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let mut site = Self { folder, shell, input, output: BufReader::new(output) };
        site.type_in(PRELUDE);
        site
    }

    /// Has the shell run these lines, and returns their output. Each must succeed.
    fn type_in(&mut self, lines: &str) -> String {
        writeln!(self.input, "{lines}\necho @@done").unwrap();
        let mut told = String::new();
        loop {
            let before = told.len();
            let ended = self.output.read_line(&mut told).unwrap() == 0;
            let line = &told[before..];
            assert!(!ended && !line.starts_with("@@failed"), "{lines}\n{told}");
            if line == "@@done\n" {
                return told;
            }
        }
    }

    fn socket(&self, role: &str) -> PathBuf {
        self.folder.join(format!("run/forebay/{role}.sock"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for log in fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path()) {
            if log.extension().is_some_and(|it| it == "log") {
                println!("{}:\n{}", log.display(), fs::read_to_string(&log).unwrap());
            }
        }
        // Ends the shell, and with it all processes that it started.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The blocks of a page, each with the place that its first line names.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("```sh\n# at ").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| block.split_once('\n').unwrap()).collect()
}

/// Follows a page at two gateways; the first is the sendbox's. Then sends from host to host, and waits until the boxes
/// measure that traffic.
fn follow(
    page: &str,
    places: [&str; 2],
    gateways: [&Namespace; 2],
    hosts: [&Namespace; 2],
    to: Ipv4Addr,
) {
    let words = page.split_whitespace().count();
    assert!(words <= WORDS_MAX, "{words} words");
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    let keys = |site: &Path| site.join("etc/forebay");
    let mut sites = [
        Site::open(gateways[0], a.clone(), &keys(&b)),
        Site::open(gateways[1], b.clone(), &keys(&a)),
    ];
    let blocks = blocks(page);
    assert!(blocks.len() >= 2, "{blocks:?}");
    for (place, lines) in blocks {
        for (own, other) in [(0, 1), (1, 0)] {
            if place != places[own] && place != "both" {
                continue;
            }
            let public = sites[other].folder.join("etc/wireguard/public.key");
            let public = fs::read_to_string(public).unwrap_or_default();
            let name = places[other].trim_start_matches("the ").to_uppercase();
            sites[own].type_in(&format!("PUBLIC_KEY_OF_{name}='{}'", public.trim()));
            let told = sites[own].type_in(lines);
            println!("{place}\n{lines}\n{told}");
            assert!(!told.contains("FAIL"), "{told}");
        }
    }
    let sockets = [sites[1].socket("receivebox"), sites[0].socket("sendbox")];
    await_both(&sockets, |both| both.iter().all(|one| one.bundles[0].peer.state == "alive"));
    let target = SocketAddr::from((to, 9));
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for number in 0_u32..4000 {
            let mut payload = [0; 600];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            // No process listens there, as the host's kernel may report.
            let _ = socket.send_to(&payload, target);
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| hosts[0].within(send).unwrap());
        await_both(&sockets, |[_, sent]| {
            let shaping = sent.bundles[0].shaping.as_ref().unwrap();
            shaping.counters.boundaries_matched > 20
        });
    });
}

/// Host A, gateway A, fabric, gateway B and host B, each with one device, behind a fabric that routes. The fabric hands
/// packets that arrive from a host or from the other gateway to the gateway of that host's site.
struct Cloud {
    hosts: [Namespace; 2],
    gateways: [Namespace; 2],
    _fabric: Namespace,
}

impl Cloud {
    /// Addresses of hosts and gateways.
    fn build(hosts: [&str; 2], gateways: [&str; 2]) -> Self {
        let new = || Namespace::new().unwrap();
        let [fabric, host_a, host_b, gateway_a, gateway_b] = [new(), new(), new(), new(), new()];
        ip(&fabric, "link set dev lo up\naddress add 10.0.0.1/32 dev lo\n");
        fabric.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
        let [of_a, of_b] = hosts;
        for (namespace, device, address) in [
            (&host_a, "ha", of_a),
            (&host_b, "hb", of_b),
            (&gateway_a, "ga", gateways[0]),
            (&gateway_b, "gb", gateways[1]),
        ] {
            let path = fabric.path();
            ip(
                namespace,
                &format!(
                    "link set dev lo up\nlink add eth0 type veth peer name {device} netns {}\n\
                 link set dev eth0 up\naddress add {address}/32 dev eth0\nroute add 10.0.0.1 dev eth0\n\
                 route add default via 10.0.0.1 dev eth0 onlink\n",
                    path.display()
                ),
            );
            ip(&fabric, &format!("link set dev {device} up\nroute add {address} dev {device}\n"));
            let proxy = format!("/proc/sys/net/ipv4/conf/{device}/proxy_arp");
            fabric.within(|| fs::write(&proxy, "1")).unwrap();
            // Settings of a driver that has no VLAN offload and does not compute checksums.
            crate::by_hand::switch(namespace, "eth0", &["rxvlan", "txvlan", "tx"], "off");
        }
        for (device, table, gateway, via) in
            [("ha", 100, "ga", gateways[0]), ("ga", 101, "gb", gateways[1])]
        {
            ip(
                &fabric,
                &format!(
                    "route add {of_b} via {via} dev {gateway} onlink table {table}\n\
                 rule add iif {device} to {of_b} lookup {table}\n"
                ),
            );
        }
        Self { hosts: [host_a, host_b], gateways: [gateway_a, gateway_b], _fabric: fabric }
    }
}

#[test]
fn page_on_two_cloud_regions_can_be_followed() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let _alone = alone();
    let cloud = Cloud::build(["10.1.1.10", "10.2.1.10"], ["10.1.1.2", "10.2.1.2"]);
    let page = include_str!("../../../../docs/operate/two-cloud-regions.md");
    let Cloud { hosts: [a, b], gateways: [at_a, at_b], .. } = &cloud;
    follow(page, ["A", "B"], [at_a, at_b], [a, b], Ipv4Addr::new(10, 2, 1, 10));
}

#[test]
fn page_on_a_server_can_be_followed() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let _alone = alone();
    // The server is host A; the fabric routes its packets to gateway B.
    let cloud = Cloud::build(["10.1.1.77", "10.2.1.10"], ["10.1.1.10", "10.2.1.2"]);
    cloud.gateways[1].within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    let page = include_str!("../../../../docs/operate/its-own-sendbox.md");
    let [server, at_b] = &cloud.gateways;
    let places = ["the server", "the gateway"];
    follow(page, places, [server, at_b], [server, &cloud.hosts[1]], Ipv4Addr::new(10, 2, 1, 10));
}

/// Two gateways on one network, with a host behind each.
struct Pair {
    hosts: [Namespace; 2],
    gateways: [Namespace; 2],
}

impl Pair {
    /// Addresses of the gateways on their common network, and the prefix of the network behind each.
    fn build(outer: [&str; 2], inner: [&str; 2]) -> Self {
        let new = || Namespace::new().unwrap();
        let pair = Self { hosts: [new(), new()], gateways: [new(), new()] };
        let [at_a, at_b] = &pair.gateways;
        let path = at_b.path();
        ip(at_a, &format!("link add eth0 type veth peer name eth0 netns {}\n", path.display()));
        for (place, gateway) in pair.gateways.iter().enumerate() {
            let (outer, inner, host) = (outer[place], inner[place], &pair.hosts[place]);
            let path = host.path();
            ip(
                gateway,
                &format!(
                    "link set dev lo up\nlink set dev eth0 up\naddress add {outer}/24 dev eth0\n\
                 link add eth1 type veth peer name eth0 netns {}\nlink set dev eth1 up\n\
                 address add {inner}.1/24 dev eth1\n",
                    path.display()
                ),
            );
            ip(
                host,
                &format!(
                    "link set dev lo up\nlink set dev eth0 up\naddress add {inner}.10/24 dev eth0\n\
                 route add default via {inner}.1\n"
                ),
            );
        }
        pair
    }

    fn follow(&self, page: &str, places: [&str; 2], to: Ipv4Addr) {
        let Self { hosts: [a, b], gateways: [at_a, at_b] } = self;
        follow(page, places, [at_a, at_b], [a, b], to);
    }
}

/// Uses the kernel's WireGuard, or else wireguard-go, which `wg-quick` takes then.
#[test]
fn page_on_wireguard_can_be_followed() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) || skip_without(Need::Tun) {
        return;
    }
    let _alone = alone();
    let pair = Pair::build(["203.0.113.1", "203.0.113.9"], ["10.1.0", "10.2.0"]);
    let page = include_str!("../../../../docs/operate/wireguard-gateway.md");
    pair.follow(page, ["A", "B"], Ipv4Addr::new(10, 2, 0, 10));
}

#[test]
fn page_on_a_vps_can_be_followed() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) || skip_without(Need::Tun) {
        return;
    }
    let _alone = alone();
    // The first host is one in the Internet.
    let pair = Pair::build(["203.0.113.9", "203.0.113.1"], ["198.51.100", "10.1.0"]);
    let page = include_str!("../../../../docs/operate/one-site-and-a-vps.md");
    pair.follow(page, ["the VPS", "the site"], Ipv4Addr::new(10, 1, 0, 10));
}

/// Files and commands of the cloud-init file, which has one item a line.
fn cloud_init(text: &str) -> (Vec<(&str, String)>, Vec<Vec<&str>>) {
    let (files, commands) = text.split_once("\nruncmd:\n").unwrap();
    let files = files.split("\n  - path: ").skip(1).map(|item| {
        let (path, rest) = item.split_once('\n').unwrap();
        let (_, content) = rest.split_once("content: |\n").unwrap();
        (path, content.lines().map(|line| format!("{}\n", line.trim_start())).collect())
    });
    let commands = commands.lines().map(|line| {
        let words = line.strip_prefix("  - [").and_then(|it| it.strip_suffix(']')).unwrap();
        words.split(", ").map(|word| word.trim_matches('"')).collect()
    });
    (files.collect(), commands.collect())
}

#[test]
fn cloud_init_sets_a_gateway_up() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let _alone = alone();
    let cloud = Cloud::build(["10.1.1.10", "10.2.1.10"], ["10.1.1.2", "10.2.1.2"]);
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Site::open(&cloud.gateways[0], folder.path().join("a"), folder.path());
    let (files, commands) =
        cloud_init(include_str!("../../../../packaging/cloud-init/gateway.yaml"));
    for (path, content) in files {
        gateway.type_in(&format!("cat >{path} <<'END'\n{content}END\nchmod 600 {path}"));
    }
    let line = |words: &[&str]| {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        quoted.join(" ")
    };
    let init = commands.iter().find(|words| words[0] == "forebay").unwrap();
    let told = gateway.type_in(&format!("if {}; then false; fi", line(init)));
    assert!(told.contains("/etc/forebay/bundle.key: line 1"), "the key is to be replaced: {told}");
    gateway.type_in("rm /etc/forebay/bundle.key; forebay keygen /etc/forebay/bundle.key");
    // Here is no package server either, nor a package.
    for words in commands.iter().filter(|words| !["wget", "apt-get"].contains(&words[0])) {
        gateway.type_in(&line(words));
    }
    assert_eq!(gateway.type_in("cat /proc/sys/net/ipv4/ip_forward").lines().next(), Some("1"));
    crate::by_hand::await_status(&gateway.socket("sendbox"));
}
