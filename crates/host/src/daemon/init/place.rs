//! Place of the box: on a bridge, on a machine that routes, or at a device that it watches.

use ipnet::IpNet;

use super::survey::{Survey, SurveyedLink};
use super::{Chosen, KERNEL_DATAPATH, Wanted, list, quoted};
use crate::daemon::config::Role;
use crate::kernel;
use crate::offload::Offload;

/// Place of the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A sendbox between two ports of a bridge.
    Bridge { lan: String, wan: String, why: String },
    /// A sendbox on a machine that routes, or sends itself.
    Route { wan: String, own: bool, why: String },
    /// A receivebox at this device.
    Watch { wan: String, why: String },
    /// Unknown, with the reason.
    Open(String),
}

impl Place {
    /// Finds a place for the box.
    pub(super) fn of(wanted: &Wanted, seen: &Survey) -> Self {
        let found = match wanted.role {
            Role::Sendbox => Self::of_sendbox(wanted, seen),
            Role::Receivebox => watched(wanted, seen),
        };
        found.unwrap_or_else(Self::Open)
    }

    fn of_sendbox(wanted: &Wanted, seen: &Survey) -> Result<Self, String> {
        if let Some(lan) = &wanted.lan {
            let wan = wanted.wan.clone().or_else(|| other_port(seen, lan));
            let wan = wan.ok_or_else(|| format!("{lan} is no port of a bridge with two: --wan"))?;
            return Ok(Self::Bridge { lan: lan.clone(), wan, why: "Set by --lan.".into() });
        }
        if let Some(wan) = &wanted.wan
            && let Some(lan) = other_port(seen, wan)
        {
            let why = format!("{wan} (set by --wan) and {lan} are the ports of one bridge.");
            return Ok(Self::Bridge { lan, wan: wan.clone(), why });
        }
        let (device, port, why) = device_towards(wanted, seen)?;
        if wanted.wan.is_none() && seen.ports(&device).count() == 2 {
            let ports: Vec<&str> = seen.ports(&device).map(|port| port.name.as_str()).collect();
            let found = port.and_then(|wan| Some((other_port(seen, &wan)?, wan)));
            let Some((lan, wan)) = found else {
                return Err(format!(
                    "{why} Its ports are {} and {}, and the bridge has not seen the next hop yet: \
                     ping it once, or give --wan PORT",
                    ports[0], ports[1]
                ));
            };
            let why = format!("{why} The bridge sees the next hop behind its port {wan}.");
            return Ok(Self::Bridge { lan, wan, why });
        }
        let is_v6 = wanted.to.first().is_some_and(|prefix| matches!(prefix, IpNet::V6(_)));
        let own = wanted.own || !seen.forwards[usize::from(is_v6)];
        Ok(Self::Route { wan: device, own, why })
    }

    /// The device towards the other site.
    pub(super) fn wan(&self) -> Option<&str> {
        match self {
            Self::Bridge { wan, .. } | Self::Route { wan, .. } | Self::Watch { wan, .. } => {
                Some(wan)
            }
            Self::Open(_) => None,
        }
    }

    /// All devices of the place.
    pub(super) fn devices(&self) -> impl Iterator<Item = &str> {
        let lan = match self {
            Self::Bridge { lan, .. } => Some(lan.as_str()),
            _ => None,
        };
        lan.into_iter().chain(self.wan())
    }

    /// Offloads of the device that are on and must be off.
    pub(super) fn unwanted(&self, link: &SurveyedLink, has_kernel_datapath: bool) -> Vec<String> {
        let is_unwanted = |name: &String| match self {
            Self::Bridge { .. } => !has_kernel_datapath,
            Self::Watch { .. } => Offload::WATCHED.iter().any(|it| it.name() == name),
            Self::Route { .. } | Self::Open(_) => false,
        };
        link.offloads.iter().filter(|name| is_unwanted(name)).cloned().collect()
    }

    /// The values of the file for this place.
    pub(super) fn chosen(&self, wanted: &Wanted, seen: &Survey) -> Vec<Chosen> {
        let device =
            |key, name: &str, why: &str| Chosen { key, value: Some(quoted(name)), why: why.into() };
        match self {
            Self::Watch { wan, why } => vec![device("box.wan", wan, why)],
            Self::Bridge { lan, wan, why } => vec![
                device("box.forward", "bridge", "The bridge forwards frames between its ports."),
                device("box.lan", lan, "The port towards the site's hosts."),
                device("box.wan", wan, why),
                device("box.datapath", "auto", &kept(seen)),
            ],
            Self::Route { wan, own, why } => vec![
                device("box.forward", "route", &forwards(*own, wanted.own)),
                Chosen {
                    key: "box.own",
                    value: Some(own.to_string()),
                    why: of_own(*own, wanted.own).into(),
                },
                device("box.wan", wan, why),
                Chosen { key: "box.datapath", value: Some(quoted("auto")), why: kept(seen) },
            ],
            Self::Open(why) => vec![Chosen { key: "box.wan", value: None, why: why.clone() }],
        }
    }
}

fn forwards(own: bool, is_wanted: bool) -> String {
    let text = match (own, is_wanted) {
        (true, false) => "This machine does not forward: it sends only its own packets.",
        (true, true) => "This machine sends packets of its own, and routes the packets of hosts.",
        (false, _) => "This machine routes; the path uses no bridge.",
    };
    text.into()
}

fn of_own(own: bool, is_wanted: bool) -> &'static str {
    match (own, is_wanted) {
        (true, true) => {
            "Set by --own: the bundle also includes packets that this machine itself \
                         sends."
        }
        (true, false) => {
            "Forwarding is off, so the bundle includes the packets that this machine itself sends. \
             On a gateway, switch forwarding on and write false."
        }
        (false, _) => {
            "The bundle includes the packets that this machine forwards; true adds its \
                       own packets."
        }
    }
}

/// Whether packets stay in the kernel, given its release.
fn kept(seen: &Survey) -> String {
    let release = &seen.release;
    if kernel::version(release) >= KERNEL_DATAPATH {
        format!("On Linux {release} packets can stay in the kernel, and offloads may stay on.")
    } else {
        format!(
            "On Linux {release}, before 6.12, packets cannot stay in the kernel: `forebay doctor` \
             shows the datapath."
        )
    }
}

/// The other port of a bridge with two.
fn other_port(seen: &Survey, port: &str) -> Option<String> {
    let bridge = seen.link(port)?.bridge.as_deref()?;
    let others: Vec<&SurveyedLink> = seen.ports(bridge).filter(|it| it.name != port).collect();
    let [other] = others[..] else { return None };
    Some(other.name.clone())
}

/// The only device through which packets to the other site leave, its port if it is a bridge, and the
/// reason.
fn device_towards(
    wanted: &Wanted,
    seen: &Survey,
) -> Result<(String, Option<String>, String), String> {
    if let Some(wan) = &wanted.wan {
        return Ok((wan.clone(), None, "Set by --wan.".into()));
    }
    let option = match wanted.role {
        Role::Sendbox => "--to",
        Role::Receivebox => "--from",
    };
    let mut first: Option<(&IpNet, &super::Way)> = None;
    for (prefix, way) in &seen.far {
        let Some(way) = way else {
            return Err(format!(
                "the kernel has no route to {prefix}: add one, or give --wan DEVICE"
            ));
        };
        if way.is_local {
            return Err(format!("{option} {prefix} contains an address of this machine"));
        }
        let (other, found) = *first.get_or_insert((prefix, way));
        if found.device != way.device {
            return Err(format!(
                "{other} leaves through {}, {prefix} through {}: write one box for each device, \
                 each with its own {option}",
                found.device, way.device
            ));
        }
    }
    let (_, way) = first.ok_or_else(|| format!("{option} names no network"))?;
    let networks: Vec<String> = seen.far.iter().map(|(prefix, _)| prefix.to_string()).collect();
    let mtu = seen.link(&way.device).map_or(String::new(), |link| format!(", MTU {}", link.mtu));
    let (networks, device) = (networks.join(" and "), &way.device);
    let why = match wanted.role {
        Role::Sendbox => format!("The kernel routes {networks} through {device}{mtu}."),
        Role::Receivebox => format!("The route back to {networks} is through {device}{mtu}."),
    };
    Ok((way.device.clone(), way.port.clone(), why))
}

/// The device that a receivebox watches.
fn watched(wanted: &Wanted, seen: &Survey) -> Result<Place, String> {
    if wanted.lan.is_some() {
        return Err("--lan is a sendbox's: a receivebox watches one device".into());
    }
    let (device, port, why) = device_towards(wanted, seen)?;
    let ports: Vec<&str> = seen.ports(&device).map(|port| port.name.as_str()).collect();
    match port {
        Some(wan) => {
            Ok(Place::Watch { why: format!("{why} The bridge sees the next hop there."), wan })
        }
        None if ports.is_empty() || wanted.wan.is_some() => Ok(Place::Watch { wan: device, why }),
        None => Err(format!(
            "{why} Its ports are {}, and the bridge has not seen the next hop yet: ping it once, \
             or give --wan PORT",
            ports.join(" and ")
        )),
    }
}

/// The networks at this site, and their source.
pub(super) struct Near {
    pub networks: Vec<IpNet>,
    why: String,
    is_given: bool,
}

/// Finds the networks at this site.
pub(super) fn near(wanted: &Wanted, seen: &Survey, place: &Place) -> Near {
    if !wanted.near().is_empty() {
        let why = "Set by the options.".into();
        return Near { networks: wanted.near().to_vec(), why, is_given: true };
    }
    let is_v6 = wanted.far().first().is_some_and(|prefix| matches!(prefix, IpNet::V6(_)));
    let forwards = seen.forwards[usize::from(is_v6)];
    let source = wanted.listen.or_else(|| seen.peer.as_ref()?.source);
    let is_host = match place {
        Place::Route { own, .. } => *own && !forwards,
        Place::Watch { wan, .. } => {
            !forwards && seen.link(wan).is_some_and(|link| link.bridge.is_none())
        }
        Place::Bridge { .. } | Place::Open(_) => false,
    };
    if is_host && let Some(own) = source.filter(|own| own.is_ipv6() == is_v6) {
        let why = "This machine does not forward, so this is its own address.".into();
        return Near { networks: vec![IpNet::from(own)], why, is_given: false };
    }
    let fits = |network: &&(String, IpNet)| matches!(network.1, IpNet::V6(_)) == is_v6;
    // A network of all addresses does not show where another network is.
    let is_far = |network: &IpNet| {
        wanted.far().iter().any(|far| far.prefix_len() > 0 && far.contains(network))
    };
    let on = |is_wan: bool| {
        let networks = seen.networks.iter().filter(fits).filter(|(device, network)| {
            let link = seen.link(device);
            let is_lan = link.is_some_and(|link| link.is_ethernet && !is_virtual(link));
            (place.wan() == Some(device)) == is_wan && is_lan && !is_far(network)
        });
        networks.map(|(_, network)| *network).collect::<Vec<IpNet>>()
    };
    let others = on(false);
    let networks = if others.is_empty() { on(true) } else { others };
    Near { networks, why: "The networks that are connected here.".into(), is_given: false }
}

/// Whether a device is a bridge of containers or virtual machines, whose networks no other site knows.
fn is_virtual(link: &SurveyedLink) -> bool {
    ["docker", "virbr", "cni", "podman", "lxc"].iter().any(|it| link.name.starts_with(it))
}

impl Near {
    /// The values of the file for these networks. A sendbox takes all sources unless the caller names
    /// some.
    pub(super) fn chosen(&self, wanted: &Wanted) -> Option<Chosen> {
        let value = Some(&self.networks).filter(|networks| !networks.is_empty());
        let value = value.map(|networks| list(networks));
        match wanted.role {
            Role::Sendbox if self.is_given => {
                Some(Chosen { key: "bundle.from", value, why: "Set by --from.".into() })
            }
            Role::Sendbox => None,
            Role::Receivebox => {
                let why = match &value {
                    Some(_) => self.why.clone(),
                    None => "the kernel shows no network behind this machine: give --to".into(),
                };
                Some(Chosen { key: "bundle.to", value, why })
            }
        }
    }
}
