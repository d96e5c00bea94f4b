//! Triangles of boxes on machines that route, and removal of their remains. A triangle takes packets to the
//! process if the kernel cannot queue them itself.

use std::collections::BTreeSet;
use std::io;

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;

use super::claim::Claim;
use super::config::{Config, Forward, Role};
use super::{DaemonError, attempt};
use crate::service::privileges::Confinement;
use crate::triangle::{self, FoundTriangle, Names, Spec};

/// The triangle of a box. Its name is the box's name in the file, or else the name of the file.
pub fn triangle_of(config: &Config) -> Spec {
    let stem = config.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is_named = config.name != config.role.name();
    let name = stem.filter(|_| !is_named).unwrap_or_else(|| config.name.clone());
    let to: BTreeSet<IpNet> = config.bundles.iter().flat_map(|it| &it.to).copied().collect();
    let (wan, lan) = (config.wan.clone(), config.lan.clone());
    Spec { name, wan, lan, to: to.into_iter().collect(), own: config.own }
}

/// Whether a box needs a triangle on this machine, and the reason.
pub fn needs_triangle(config: &Config) -> (bool, String) {
    if config.role == Role::Receivebox || config.forward == Forward::Bridge {
        return (false, "this box does not route".into());
    }
    let (datapath, why) = attempt::settled(config);
    let why = why.map_or_else(
        || format!("box.datapath = \"{}\"", config.datapath.name()),
        |why| format!("box.datapath = \"auto\" is {why}"),
    );
    (!datapath.is_in_kernel(), why)
}

/// Removes remains of sendboxes of machines that route in this network namespace. It removes nothing that
/// belongs to a running box, and nothing that no box has created. Returns descriptions of the removed
/// objects.
///
/// # Errors
///
/// A removal that the kernel refuses. Earlier removals are not undone.
pub fn clean() -> Result<Vec<String>, DaemonError> {
    let failed = |error: io::Error| {
        let error = io::Error::new(error.kind(), format!("removing leftovers of boxes: {error}"));
        DaemonError::SetUp(error)
    };
    let (mut said, mut kept) = (Vec::new(), Vec::new());
    for FoundTriangle { name, wan } in triangle::found().map_err(failed)? {
        let names = Names::of(&name);
        let claimed = wan.as_deref().map(claimed);
        if let Some(Err(error)) = claimed {
            said.push(format!("the triangle of {name} stays: {error}"));
            kept.push(names);
            continue;
        }
        triangle::remove(&names).map_err(failed)?;
        said.push(format!(
            "removed the triangle of {name}: {}, {} and the network namespace {}",
            names.entrance, names.exit, names.namespace
        ));
    }
    let rules = triangle::remove_orphans(&kept).map_err(failed)?;
    if rules > 0 {
        said.push(format!("removed {rules} policy rules of boxes that no longer run"));
    }
    Ok(said)
}

/// Claims a WAN for a moment, which fails while its sendbox runs. A WAN that is gone has no sendbox.
fn claimed(wan: &str) -> Result<(), DaemonError> {
    let Ok(index) = if_nametoindex(wan) else { return Ok(()) };
    Claim::take(wan, index, &Confinement::default()).map(drop)
}
