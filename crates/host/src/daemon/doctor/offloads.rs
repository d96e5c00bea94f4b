//! Checks of the offloads with which a device changes packets, and which of these a box cannot bear.

use super::{Check, DeviceUse, run};
use crate::ethernet;
use crate::lower;
use crate::offload::{self, Offload};

/// A receivebox needs a few offloads off, a sendbox all.
pub(super) fn examine(name: &str, device: &str, place: DeviceUse) -> Check {
    let active = match offload::active(device) {
        Ok(active) if active.is_empty() => return Check::ok(name, "off"),
        Ok(active) => active,
        Err(error) => {
            return Check::fail(
                name,
                error.to_string(),
                "name a device whose offloads can be read",
            );
        }
    };
    let has_ethtool = run("ethtool", &["--version"]).is_ok();
    let list = |active: &[Offload]| active.iter().map(|one| format!(" {one}")).collect::<String>();
    let fix = |active: &[Offload]| switch_off(device, active, has_ethtool);
    let found = format!("on:{}", list(&active));
    let is_watched = |one: &Offload| Offload::WATCHED.contains(one);
    match place {
        DeviceUse::Lan | DeviceUse::Wan => Check::fail(name, found, fix(&active)),
        DeviceUse::Watched | DeviceUse::Unknown if active.iter().any(is_watched) => {
            let watched: Vec<Offload> = active.into_iter().filter(is_watched).collect();
            Check::fail(name, format!("on:{}", list(&watched)), fix(&watched))
        }
        DeviceUse::Unknown => Check::warn(name, found, format!("as a sendbox's: {}", fix(&active))),
        // The kernel runs the program of a veth before GRO, and a program at tc behind GRO. Of other drivers
        // that is not known.
        DeviceUse::Watched
            if active.contains(&Offload::Gro)
                && !ethernet::is_bare(device).unwrap_or_default()
                && !offload::driver(device).is_ok_and(|driver| driver == "veth") =>
        {
            let found = "on: gro, which runs before the XDP program if the driver cannot run that program \
                 (generic mode)";
            Check::warn(name, found, format!("{}, if the box requests it", fix(&[Offload::Gro])))
        }
        DeviceUse::Watched | DeviceUse::Bridged | DeviceUse::Routed => {
            Check::ok(name, format!("{found}, which has no effect here"))
        }
    }
}

/// Offloads of a lower device that change packets on their way up; `None` if they do not matter.
pub(super) fn below(name: &str, device: &str, place: DeviceUse) -> Option<Check> {
    if place == DeviceUse::Wan {
        return None;
    }
    match lower::merging_below(device) {
        Ok(None) => None,
        Ok(Some(lower)) => {
            let found = format!(
                "{lower} has gro or lro on, which run before a program of {device} in generic mode"
            );
            let fix = format!("ethtool -K {lower} gro off lro off, if the box requests it");
            Some(Check::warn(name, found, fix))
        }
        Err(error) => Some(Check::warn(name, error.to_string(), "look at `ip link`")),
    }
}

/// The command that switches offloads off. A box needs ethtool for nothing else.
fn switch_off(device: &str, active: &[Offload], has_ethtool: bool) -> String {
    let install = if has_ethtool { "" } else { "apt install ethtool && " };
    let list: String = active.iter().map(|offload| format!(" {offload} off")).collect();
    format!("{install}ethtool -K {device}{list}")
}

#[cfg(test)]
mod tests {
    use super::super::examine;
    use super::*;

    #[test]
    fn ethtool_is_required_only_where_needed() {
        let active = [Offload::Tso, Offload::Gro];
        let line = "ethtool -K left tso off gro off";
        assert_eq!(switch_off("left", &active, true), line);
        assert_eq!(switch_off("left", &active, false), format!("apt install ethtool && {line}"));
        assert!(examine(&[], &[]).iter().all(|check| !check.fix.contains("ethtool")));
    }
}
