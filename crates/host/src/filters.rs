//! Finds packet filters in the kernel's path from one device to another.
//!
//! A packet that an XDP program takes bypasses the filters at the ingress of its device. A packet that an AF_XDP socket
//! sends bypasses the filters at the egress. Both bypass the filters of a bridge in between. A box must not silently
//! disable a filter that an operator has configured.

use std::io;

use forebay_ebpf::CLASSIFY;
#[cfg(feature = "bpf")]
use forebay_ebpf::{has_tcx, tcx_programs};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::SockProtocol;

use crate::egress;
use crate::netlink::{self, HEADER, all_attributes, attribute};

/// Build without BPF: its boxes have no egress with filters.
#[cfg(not(feature = "bpf"))]
fn tcx_programs(_ifindex: u32, _is_egress: bool) -> io::Result<Vec<String>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this build cannot list BPF programs"))
}

#[cfg(not(feature = "bpf"))]
fn has_tcx(ifindex: u32, is_egress: bool) -> io::Result<bool> {
    tcx_programs(ifindex, is_egress).map(|names| !names.is_empty())
}

/// A filter in the way of a box, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// A text that names the filter.
    pub found: String,
    /// The remedy: a command, or a text for the operator.
    pub fix: String,
}

/// A filter of tc(8) or of tcx at the ingress of `lan` or at the egress of `wan`; needs `CAP_NET_ADMIN`.
pub fn of_tc(lan: &str, wan: &str) -> io::Result<Option<Filter>> {
    for (device, side) in [(lan, Side::Ingress), (wan, Side::Egress)] {
        let ifindex = if_nametoindex(device)?;
        if has_tc_filter(ifindex, side)? {
            return Ok(Some(Filter {
                found: format!("{device} has a tc filter at its {}", side.name()),
                fix: format!("tc filter del dev {device} {}", side.name()),
            }));
        }
        if has_tcx(ifindex, side == Side::Egress)? {
            return Ok(Some(Filter {
                found: format!("{device} has a BPF program at its {} (tcx)", side.name()),
                fix: format!("stop its owner: `bpftool net show dev {device}` names it"),
            }));
        }
    }
    Ok(None)
}

/// Programs at the egress of `wan` (tcx) in front of the program that puts packets into classes, if that is there. The
/// latter does not see packets that a program in front of it accepts or drops. Needs `CAP_NET_ADMIN` and
/// `CAP_SYS_ADMIN`.
pub fn ahead_of_classes(wan: &str) -> io::Result<Option<Filter>> {
    let names = tcx_programs(if_nametoindex(wan)?, true)?;
    let ahead = ahead_of(CLASSIFY, &names).join(", ");
    if ahead.is_empty() {
        return Ok(None);
    }
    let found = format!(
        "{wan} has BPF programs at its egress (tcx) in front of {CLASSIFY}: {ahead}: packets that they let pass \
         themselves (TCX_PASS) are in no bundle"
    );
    let fix = "ask their owner to attach them behind it, or start the box again, which attaches \
               first";
    Ok(Some(Filter { found, fix: fix.into() }))
}

/// Programs of `names` in front of `name`, if that is there.
fn ahead_of<'a>(name: &str, names: &'a [String]) -> &'a [String] {
    // Take the last match: a program behind another one of that name may still be in front of the box's own.
    names.iter().rposition(|it| it == name).map_or(&[][..], |at| &names[..at])
}

/// A chain of nftables that has rules or drops by policy, between `lan` and `wan` of one bridge. The chain belongs to
/// the bridge family or to one of the devices. If `calls_iptables`, chains for routed packets count too, including
/// iptables' chains. Needs `CAP_NET_ADMIN`.
pub fn of_netfilter(lan: &str, wan: &str, calls_iptables: bool) -> io::Result<Option<Filter>> {
    let chains = chains()?;
    if let Some(chain) = chains.iter().find(|chain| chain.acts() && chain.is_between(lan, wan)) {
        return Ok(Some(Filter {
            found: format!("nftables filters in chain {}", chain.name),
            fix: format!("nft delete table {}", chain.table),
        }));
    }
    if !calls_iptables {
        return Ok(None);
    }
    let of_nftables = chains.iter().find(|chain| chain.acts() && chain.is_routed());
    let found = of_nftables.map(|chain| format!("nftables' chain {}", chain.name)).or_else(|| {
        let names = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
        let has_tables =
            |path| std::fs::read_to_string(path).is_ok_and(|names| !names.trim().is_empty());
        names.into_iter().any(has_tables).then(|| "iptables".into())
    });
    Ok(found.map(|what| Filter {
        found: format!("{what} sees bridged packets"),
        fix: "sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 and \
              nf_call_iptables 0 of the bridge"
            .into(),
    }))
}

/// Names a chain of nftables with NAT rules, or the NAT table of iptables, if it may change the source of routed
/// packets. Needs `CAP_NET_ADMIN`.
pub fn of_source_nat() -> io::Result<Option<String>> {
    let chains = chains()?;
    let is_it = |chain: &&Chain| {
        chain.is_nat && chain.hook == POSTROUTING && chain.is_routed() && chain.rules > 0
    };
    if let Some(chain) = chains.iter().find(is_it) {
        return Ok(Some(format!("nftables' chain {}", chain.name)));
    }
    let has_nat = |path| {
        std::fs::read_to_string(path).is_ok_and(|names| names.lines().any(|name| name == "nat"))
    };
    let paths = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
    Ok(paths.into_iter().any(has_nat).then(|| "iptables' table nat".into()))
}

/// A chain of nftables that drops routed packets by policy, if no rule names any of `devices`. Needs `CAP_NET_ADMIN`.
pub fn of_forward_policy(devices: &[&str]) -> io::Result<Option<Filter>> {
    let chains = chains()?;
    let drops = |chain: &&Chain| chain.drops && chain.is_routed() && chain.hook == FORWARD;
    let Some(chain) = chains.iter().find(drops) else { return Ok(None) };
    let rules =
        netlink::dump_of(SockProtocol::NetlinkNetFilter, NFT_MSG_GETRULE, &[0; NFT_HEADER])?;
    let is_named = |device: &&str| {
        let name = device.as_bytes();
        rules.iter().any(|rule| rule.windows(name.len()).any(|part| part == name))
    };
    if !devices.is_empty() && devices.iter().all(is_named) {
        return Ok(None);
    }
    let fix = match devices {
        [] => "accept packets that enter or leave through the devices `fbin-*` and `fbout-*` \
             there"
            .to_string(),
        devices => devices
            .iter()
            .flat_map(|device| ["iifname", "oifname"].map(|side| (side, *device)))
            .map(|(side, device)| format!("nft insert rule {} {side} {device} accept", chain.name))
            .collect::<Vec<_>>()
            .join(" && "),
    };
    let found = format!(
        "nftables' chain {} drops packets that match none of its \
                         rules",
        chain.name
    );
    Ok(Some(Filter { found, fix }))
}

/// Whether bridges of this network namespace pass forwarded frames to iptables.
pub fn bridges_call_iptables() -> bool {
    let is_on = |key| {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{key}");
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "1")
    };
    is_on("iptables") || is_on("ip6tables")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ingress,
    Egress,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Netlink message that asks for tc filters (include/uapi/linux/rtnetlink.h).
const RTM_GETTFILTER: u16 = 46;
/// Parent of the qdiscs `clsact` and `ingress` (include/uapi/linux/pkt_sched.h).
const TC_H_CLSACT: u32 = 0xffff_fff1;
/// Parent of filters at the ingress of a device (include/uapi/linux/pkt_sched.h).
const TC_H_CLSACT_INGRESS: u32 = 0xffff_fff2;
/// Parent of filters at the egress of a device (include/uapi/linux/pkt_sched.h).
const TC_H_CLSACT_EGRESS: u32 = 0xffff_fff3;

fn has_tc_filter(ifindex: u32, side: Side) -> io::Result<bool> {
    // For a request about the egress, the qdisc `ingress` lists the filters of its ingress.
    let is_there = egress::qdiscs(ifindex)?.iter().any(|qdisc| {
        qdisc.parent == TC_H_CLSACT
            && (qdisc.kind == "clsact" || qdisc.kind == "ingress" && side == Side::Ingress)
    });
    if !is_there {
        return Ok(false);
    }
    let parent = match side {
        Side::Ingress => TC_H_CLSACT_INGRESS,
        Side::Egress => TC_H_CLSACT_EGRESS,
    };
    Ok(!netlink::dump(RTM_GETTFILTER, &egress::about(ifindex, parent))?.is_empty())
}

/// Netlink message that asks for chains: subsystem 10, message 4 (linux/netfilter/nf_tables.h).
const NFT_MSG_GETCHAIN: u16 = 10 << 8 | 4;
/// Netlink message that asks for rules: subsystem 10, message 7 (linux/netfilter/nf_tables.h).
const NFT_MSG_GETRULE: u16 = 10 << 8 | 7;
/// `struct nfgenmsg`: family, version, resource.
const NFT_HEADER: usize = 4;
/// Attribute: the table of a chain (linux/netfilter/nf_tables.h, as the following attributes).
const NFTA_CHAIN_TABLE: u16 = 1;
/// Attribute: the name of a chain.
const NFTA_CHAIN_NAME: u16 = 3;
/// Attribute: the hook of a base chain.
const NFTA_CHAIN_HOOK: u16 = 4;
/// Attribute: the verdict of a chain at its end.
const NFTA_CHAIN_POLICY: u16 = 5;
/// Attribute: the number of references to a chain, which are its rules.
const NFTA_CHAIN_USE: u16 = 6;
/// Attribute: the type of a chain, such as `filter`.
const NFTA_CHAIN_TYPE: u16 = 7;
/// Attribute in [`NFTA_CHAIN_HOOK`]: the number of the hook.
const NFTA_HOOK_HOOKNUM: u16 = 1;
/// Attribute in [`NFTA_CHAIN_HOOK`]: the device of the hook.
const NFTA_HOOK_DEV: u16 = 3;
/// Attribute in [`NFTA_CHAIN_HOOK`]: a list of devices.
const NFTA_HOOK_DEVS: u16 = 4;
/// In a list of devices: a prefix of device names (Linux 6.16).
const NFTA_DEVICE_PREFIX: u16 = 2;
/// Verdict: drop the packet (linux/netfilter.h).
const NF_DROP: u32 = 0;
/// Families of nftables with their numbers (linux/netfilter.h).
const FAMILIES: [(u8, &str); 5] =
    [(1, "inet"), (2, "ip"), (5, "netdev"), (7, "bridge"), (10, "ip6")];
/// Hooks before, at and after forwarding. The other hooks see the traffic of the host itself.
const HOOKS_OF_FORWARDED: [u32; 3] = [0, FORWARD, POSTROUTING];
/// Hook at forwarding (linux/netfilter.h, linux/netfilter_bridge.h).
const FORWARD: u32 = 2;
/// Hook after forwarding (linux/netfilter.h, linux/netfilter_bridge.h).
const POSTROUTING: u32 = 4;
/// Hook of the family `netdev` at the ingress of a device (linux/netfilter.h).
const NETDEV_INGRESS: u32 = 0;
/// Hook of the family `netdev` at the egress of a device (linux/netfilter.h).
const NETDEV_EGRESS: u32 = 1;
/// Hook of the family `inet` at the ingress of a device (linux/netfilter.h).
const INET_INGRESS: u32 = 5;

/// A base chain: the kernel enters it at a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chain {
    family: &'static str,
    /// Family and table, in the syntax of nft(8).
    table: String,
    /// Family, table and the chain's own name.
    name: String,
    /// Rules of this chain change addresses.
    is_nat: bool,
    hook: u32,
    devices: Vec<String>,
    /// Prefixes of the names of further devices.
    prefixes: Vec<String>,
    drops: bool,
    rules: u32,
}

impl Chain {
    /// Whether the chain may change or drop a packet.
    fn acts(&self) -> bool {
        self.drops || self.rules > 0
    }

    /// Whether the chain sees frames between two ports of a bridge.
    fn is_between(&self, lan: &str, wan: &str) -> bool {
        let is_of = |device: &str| {
            self.devices.iter().any(|of| of == device)
                || self.prefixes.iter().any(|prefix| device.starts_with(prefix))
        };
        match (self.family, self.hook) {
            ("bridge", hook) => HOOKS_OF_FORWARDED.contains(&hook),
            ("netdev", NETDEV_INGRESS) | ("inet", INET_INGRESS) => is_of(lan),
            ("netdev", NETDEV_EGRESS) => is_of(wan),
            _ => false,
        }
    }

    /// Whether the chain sees routed packets.
    fn is_routed(&self) -> bool {
        ["inet", "ip", "ip6"].contains(&self.family) && HOOKS_OF_FORWARDED.contains(&self.hook)
    }

    /// Reads the kernel's message. Returns `None` for a chain without a hook, and for a malformed message.
    fn parse(message: &[u8]) -> Option<Self> {
        let number = *message.get(HEADER)?;
        let (_, family) = FAMILIES.into_iter().find(|(family, _)| *family == number)?;
        let chain = message.get(HEADER + NFT_HEADER..)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
        let hook = attribute(chain, NFTA_CHAIN_HOOK)?;
        let table = format!("{family} {}", text(attribute(chain, NFTA_CHAIN_TABLE)?));
        let list = all_attributes(attribute(hook, NFTA_HOOK_DEVS).unwrap_or_default());
        let (prefixes, listed): (Vec<_>, Vec<_>) =
            list.partition(|(kind, _)| *kind == NFTA_DEVICE_PREFIX);
        let listed = listed.into_iter().map(|(_, name)| name);
        let devices = attribute(hook, NFTA_HOOK_DEV).into_iter().chain(listed);
        Some(Self {
            family,
            name: format!("{table} {}", text(attribute(chain, NFTA_CHAIN_NAME)?)),
            table,
            is_nat: attribute(chain, NFTA_CHAIN_TYPE).is_some_and(|kind| text(kind) == "nat"),
            hook: word(attribute(hook, NFTA_HOOK_HOOKNUM)?)?,
            devices: devices.map(text).collect(),
            prefixes: prefixes.into_iter().map(|(_, prefix)| text(prefix)).collect(),
            drops: attribute(chain, NFTA_CHAIN_POLICY).and_then(word) == Some(NF_DROP),
            rules: attribute(chain, NFTA_CHAIN_USE).and_then(word).unwrap_or(0),
        })
    }
}

/// All base chains of the kernel; none if it has no nftables.
fn chains() -> io::Result<Vec<Chain>> {
    // Family 0 requests the chains of all families.
    let answer =
        netlink::dump_of(SockProtocol::NetlinkNetFilter, NFT_MSG_GETCHAIN, &[0; NFT_HEADER]);
    match answer {
        Ok(messages) => Ok(messages.iter().filter_map(|message| Chain::parse(message)).collect()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL) => Ok(Vec::new()),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    fn nft(rules: &str) {
        let status = std::process::Command::new("nft").arg(rules).status().expect("nft is here");
        assert!(status.success(), "{rules}");
    }

    #[test]
    fn only_tc_filters_on_the_bundle_path_count() {
        on_a_veth_pair(|| {
            let found = || of_tc("left", "right").unwrap();
            assert_eq!(found(), None);
            // A filter in the opposite direction of the bundle does not count.
            run("tc qdisc add dev left clsact");
            run("tc qdisc add dev right clsact");
            let rule = "protocol ip u32 match u32 0 0";
            for (device, side) in [("left", "egress"), ("right", "ingress")] {
                run(&format!("tc filter add dev {device} {side} {rule}"));
            }
            assert_eq!(found(), None);
            for (device, side) in [("left", "ingress"), ("right", "egress")] {
                run(&format!("tc filter add dev {device} {side} {rule}"));
                let filter = found().unwrap();
                assert_eq!(filter.found, format!("{device} has a tc filter at its {side}"));
                run(&filter.fix);
                assert_eq!(found(), None);
            }
            // A filter of a block, which several devices share.
            run("tc qdisc del dev left clsact");
            run("tc qdisc add dev left ingress_block 7 clsact");
            run(&format!("tc filter add block 7 {rule}"));
            assert_eq!(found().unwrap().found, "left has a tc filter at its ingress");
            run("tc filter del block 7");
            assert_eq!(found(), None);
            // The older qdisc only has an ingress.
            for device in ["left", "right"] {
                run(&format!("tc qdisc del dev {device} clsact"));
                run(&format!("tc qdisc add dev {device} ingress"));
            }
            run(&format!("tc filter add dev right parent ffff: {rule}"));
            assert_eq!(found(), None);
            run(&format!("tc filter add dev left parent ffff: {rule}"));
            assert!(found().is_some());
        });
    }

    #[test]
    fn source_nat_and_dropping_forward_chains_are_found() {
        on_a_veth_pair(|| {
            nft("add table ip n; add chain ip n p { type nat hook postrouting priority 100; }");
            nft("add chain ip n o { type nat hook output priority 0; }");
            assert_eq!(of_source_nat().unwrap(), None, "no rules");
            nft("add rule ip n o counter");
            assert_eq!(of_source_nat().unwrap(), None, "of what the machine sends");
            nft("add rule ip n p oifname left masquerade");
            assert_eq!(of_source_nat().unwrap().unwrap(), "nftables' chain ip n p");
            let policy = |devices: &[&str]| of_forward_policy(devices).unwrap();
            nft("add table inet f; add chain inet f c { type filter hook forward priority 0; }");
            assert_eq!(policy(&["left", "right"]), None);
            nft("add chain inet f c { policy drop; }");
            let Filter { found, fix } = policy(&[]).unwrap();
            assert!(found.contains("inet f c drops") && fix.contains("fbin-*"), "{found}: {fix}");
            let Filter { fix, .. } = policy(&["left", "right"]).unwrap();
            for command in fix.split(" && ") {
                run(command);
            }
            assert_eq!(policy(&["left", "right"]), None);
            assert!(policy(&["left", "other"]).is_some());
        });
    }

    #[test]
    fn only_programs_before_classify_count() {
        let ahead = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            ahead_of("classify", &names).len()
        };
        assert_eq!(ahead(&["guard", "meter", "classify", "other"]), 2);
        assert_eq!(ahead(&["classify", "guard"]), 0);
        assert_eq!(ahead(&["classify", "guard", "classify"]), 2, "one is another's");
        assert_eq!(ahead(&["guard"]), 0);
    }

    #[test]
    fn only_chains_between_the_ports_count() {
        on_a_veth_pair(|| {
            let found = |calls_iptables| of_netfilter("left", "right", calls_iptables).unwrap();
            assert_eq!(found(true), None);
            let chain = |name: &str, family: &str, hook: &str| {
                let table = format!("{family} {}", &family[..1]);
                let hook = format!("{{ type filter hook {hook} priority 0; }}");
                nft(&format!("add table {table}; add chain {table} {name} {hook}"));
            };
            let counting = |family: &str, hook: &str| {
                chain("c", family, hook);
                nft(&format!("add rule {family} {} c counter", &family[..1]));
            };
            chain("c", "bridge", "forward");
            nft("add chain bridge b called; add rule bridge b called counter");
            chain("own", "bridge", "input");
            nft("add rule bridge b own counter");
            counting("netdev", "ingress device right");
            assert_eq!(found(true), None, "no rules, other hooks and another direction");
            let drop = |hook| {
                nft(&format!(
                    "add chain bridge b c {{ type filter hook {hook} priority 0; policy drop; }}"
                ))
            };
            let makers: [(&str, &dyn Fn()); 5] = [
                ("bridge b", &|| nft("add rule bridge b c counter")),
                ("bridge b", &|| {
                    nft("add table bridge b");
                    drop("postrouting");
                }),
                ("netdev n", &|| {
                    nft("delete table netdev n");
                    counting("netdev", "ingress device left");
                }),
                ("netdev n", &|| counting("netdev", "egress device right")),
                ("inet i", &|| counting("inet", "ingress device left")),
            ];
            for (number, (table, make)) in makers.into_iter().enumerate() {
                make();
                let filter = found(false).unwrap();
                assert_eq!(
                    filter.found,
                    format!("nftables filters in chain {table} c"),
                    "{number}"
                );
                run(&filter.fix);
                assert_eq!(found(false), None, "{number}");
            }
            counting("ip", "forward");
            assert_eq!(found(false), None);
            assert!(found(true).unwrap().found.contains("ip i c sees bridged packets"));
        });
    }

    #[test]
    fn truncated_message_names_no_other_chain() {
        on_a_veth_pair(|| {
            let hook =
                "type filter hook ingress devices = { left, right } priority 0; policy drop;";
            nft(&format!("add table netdev n; add chain netdev n c {{ {hook} }}"));
            let body = [0; NFT_HEADER];
            let protocol = SockProtocol::NetlinkNetFilter;
            let message = netlink::dump_of(protocol, NFT_MSG_GETCHAIN, &body).unwrap().remove(0);
            let whole = Chain::parse(&message).unwrap();
            assert_eq!((whole.devices.len(), whole.drops, whole.rules), (2, true, 0));
            // The list that a newer nft(8) writes for `device "le*"`.
            let mut wild = message.clone();
            let at = message.windows(8).position(|bytes| bytes[4..] == *b"left").unwrap();
            wild[at + 2] = NFTA_DEVICE_PREFIX as u8;
            wild[at + 6..at + 8].fill(0);
            let wild = Chain::parse(&wild).unwrap();
            assert_eq!(
                (&wild.devices[..], &wild.prefixes[0]),
                (&["right".into()][..], &"le".into())
            );
            assert!(wild.is_between("left", "other") && !wild.is_between("other", "left"));
            for len in 0..message.len() {
                let Some(found) = Chain::parse(&message[..len]) else { continue };
                assert_eq!(
                    (found.name, found.hook),
                    (whole.name.clone(), whole.hook),
                    "cut at {len}"
                );
            }
        });
    }
}
