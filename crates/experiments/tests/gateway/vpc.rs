//! Two sites of virtual machines as in a cloud: each has one NIC with a /32, and the site's fabric routes all traffic.
//!
//! ```text
//!  host 10.1.1.10 ───┐                                        ┌─── host 10.1.2.10
//!                  fabric ════ 20 Mbit/s, 10 ms, 250 p ════ fabric
//!  gateway 10.1.1.2 ─┘                                        └─── gateway 10.1.2.2
//! ```
//! If a site has a gateway, the fabric hands it all traffic between the host and the other site. The gateway returns
//! that traffic through the same NIC.

use std::net::Ipv4Addr;

use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;

use crate::alone;
use crate::course::{self, Ends};
use crate::link::Bottleneck;
use crate::machine::{host, ip, output, router, without_offloads};

/// Virtual router that gets all packets of a site's machines.
const ROUTER: &str = "10.0.0.1";

/// Both sites.
pub struct Vpc {
    /// The site that sends, and the site that receives.
    pub sites: [Site; 2],
    /// The link between them.
    pub link: Bottleneck,
}

/// The machines of a site.
pub struct Site {
    /// Has the application.
    pub host: Namespace,
    /// Forwards, if the site has a gateway.
    pub gateway: Namespace,
    fabric: Namespace,
}

/// Address of the host at `site`, 0 or 1.
pub fn host_at(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, site as u8 + 1, 10)
}

/// Address of the gateway there.
pub fn gateway_at(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, site as u8 + 1, 2)
}

/// All addresses there.
pub fn prefix(site: usize) -> String {
    format!("10.1.{}.0/24", site + 1)
}

impl Vpc {
    /// Builds both; `has_gateway`: traffic passes the site's gateway.
    pub fn build(has_gateway: [bool; 2]) -> Self {
        let middle = router();
        let sites = [0, 1].map(|site| Site::build(site, has_gateway[site], &middle));
        for site in &sites {
            // The emulator takes packets of the wire's size.
            without_offloads(&site.fabric, "wide");
        }
        ip(&middle, "link set dev left up\nlink set dev right up\n");
        let link = Bottleneck::start(middle);
        for site in &sites {
            // The boxes at a fabric may have switched some offloads on.
            without_offloads(&site.fabric, "wide");
        }
        Self { sites, link }
    }
}

impl Site {
    fn build(site: usize, has_gateway: bool, middle: &Namespace) -> Self {
        let it = Self { host: host(), gateway: router(), fabric: router() };
        let [own, other] = [site, 1 - site];
        let port = ["left", "right"][site];
        let [host, gateway, middle] =
            [&it.host, &it.gateway, middle].map(|to| to.path().display().to_string());
        let mut lines = format!(
            "link add host type veth peer name eth0 netns {host}\n\
             link add host2 type veth peer name eth1 netns {host}\n\
             link add gateway type veth peer name eth0 netns {gateway}\n\
             link add gateway2 type veth peer name eth1 netns {gateway}\n\
             link add wide address 02:00:00:00:00:0{own} type veth peer name {port} netns {middle}\n\
             address add {ROUTER}/32 dev lo\n\
             address add 10.255.0.{}/24 dev wide\n",
            own + 1,
        );
        for device in ["host", "host2", "gateway", "gateway2", "wide"] {
            lines += &format!("link set dev {device} up\n");
        }
        let next = format!("10.255.0.{}", other + 1);
        lines += &format!(
            "neighbour add {next} lladdr 02:00:00:00:00:0{other} dev wide nud permanent\n\
             route add default via {next} dev wide\n\
             route add {} dev host\n\
             route add {} dev gateway\n",
            host_at(own),
            gateway_at(own),
        );
        if has_gateway {
            let through = format!("via {} dev gateway onlink", gateway_at(own));
            lines += &format!(
                "route add {} {through} table 100\n\
                 route add {} {through} table 101\n\
                 rule add iif host to {} lookup 100\n\
                 rule add iif wide to {} lookup 101\n",
                prefix(other),
                host_at(own),
                prefix(other),
                host_at(own),
            );
        }
        ip(&it.fabric, &lines);
        for (machine, address) in [(&it.host, host_at(own)), (&it.gateway, gateway_at(own))] {
            let lines = format!(
                "link set dev eth0 up\n\
                 link set dev eth1 up\n\
                 address add {address}/32 dev eth0\n\
                 route add {ROUTER} dev eth0\n\
                 route add default via {ROUTER} dev eth0 onlink\n"
            );
            ip(machine, &lines);
            // A receivebox requires it.
            output(machine, "ethtool -K eth0 rxvlan off");
        }
        it
    }
}

/// Routes the other site's packets through the second NIC of the machine with the sendbox, and back.
pub fn detour() -> [String; 2] {
    let route = format!("{} via {ROUTER} dev eth1 onlink", prefix(1));
    [format!("route add {route}\n"), format!("route del {route}\n")]
}

/// The boxes at both gateways.
pub fn ends<'a>(vpc: &'a Vpc, datapath: &str) -> Ends<'a> {
    let [near, far] = &vpc.sites;
    Ends {
        sendbox: &near.gateway,
        receivebox: &far.gateway,
        hosts: [&near.host, &far.host],
        wan: ["eth0"; 2],
        listen: [gateway_at(0), gateway_at(1)],
        networks: [prefix(0), prefix(1)],
        more: format!("datapath = \"{datapath}\"\n"),
        detour: detour(),
    }
}

#[test]
fn one_nic_gateway_moves_queue_and_fails_open() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let _alone = alone();
    let vpc = Vpc::build([true; 2]);
    let outcome = course::short("a gateway with one NIC", &ends(&vpc, "kernel"));
    outcome.judge_function(&vpc.link.finish());
}

#[test]
#[ignore = "a minute of real traffic: make test-gateway"]
fn long_course_of_one_nic_gateway() {
    let _alone = alone();
    let vpc = Vpc::build([true; 2]);
    course::long("a gateway with one NIC", &ends(&vpc, "kernel")).judge(&vpc.link.finish());
}
