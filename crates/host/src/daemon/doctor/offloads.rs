//! What a device does to packets on its own, and which of it a box cannot bear.

use super::{Check, Place, run};
use crate::ethernet;
use crate::lower;
use crate::offload::{self, Offload};

/// A receivebox needs few of them off, a sendbox all.
pub(super) fn examine(name: &str, device: &str, place: Place) -> Check {
    let active = match offload::active(device) {
        Ok(active) if active.is_empty() => return Check::ok(name, "off"),
        Ok(active) => active,
        Err(error) => {
            return Check::fail(name, error.to_string(), "name a device that can be asked");
        }
    };
    let has_ethtool = run("ethtool", &["--version"]).is_ok();
    let list = |active: &[Offload]| active.iter().map(|one| format!(" {one}")).collect::<String>();
    let fix = |active: &[Offload]| switch_off(device, active, has_ethtool);
    let found = format!("on:{}", list(&active));
    let is_watched = |one: &Offload| Offload::WATCHED.contains(one);
    match place {
        Place::Lan | Place::Wan => Check::fail(name, found, fix(&active)),
        Place::Watched | Place::Unknown if active.iter().any(is_watched) => {
            let watched: Vec<Offload> = active.into_iter().filter(is_watched).collect();
            Check::fail(name, format!("on:{}", list(&watched)), fix(&watched))
        }
        Place::Unknown => Check::warn(name, found, format!("as a sendbox's: {}", fix(&active))),
        // The kernel runs the program of a veth before GRO, and one at tc behind it; of others that is not known.
        Place::Watched
            if active.contains(&Offload::Gro)
                && !ethernet::is_bare(device).unwrap_or_default()
                && !offload::driver(device).is_ok_and(|driver| driver == "veth") =>
        {
            let found =
                "on: gro, which a driver that runs no XDP program (generic mode) does first";
            Check::warn(name, found, format!("{}, if the box asks", fix(&[Offload::Gro])))
        }
        Place::Watched | Place::Bridged | Place::Routed => {
            Check::ok(name, format!("{found}, which is no matter here"))
        }
    }
}

/// What a device below does to packets on their way up; `None` where that is no matter.
pub(super) fn below(name: &str, device: &str, place: Place) -> Option<Check> {
    if place == Place::Wan {
        return None;
    }
    match lower::merging_below(device) {
        Ok(None) => None,
        Ok(Some(lower)) => {
            let found = format!(
                "{lower} has gro or lro on, which come before a program of {device} in generic mode"
            );
            let fix = format!("ethtool -K {lower} gro off lro off, if the box asks");
            Some(Check::warn(name, found, fix))
        }
        Err(error) => Some(Check::warn(name, error.to_string(), "look at `ip link`")),
    }
}

/// The command that switches offloads off. Nothing else of a box needs ethtool.
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
    fn ethtool_is_only_asked_for_where_it_is_missing_and_needed() {
        let active = [Offload::Tso, Offload::Gro];
        let line = "ethtool -K left tso off gro off";
        assert_eq!(switch_off("left", &active, true), line);
        assert_eq!(switch_off("left", &active, false), format!("apt install ethtool && {line}"));
        assert!(examine(&[], &[]).iter().all(|check| !check.fix.contains("ethtool")));
    }
}
