//! Commands that an operator may run to fix a machine, and whether a box may offer them.
//!
//! A command that moves a device to a bridge or a network namespace, or takes it down, cuts the traffic over that
//! device. On a remote machine that may be the only access. So a [`Fix`] records the devices that it touches, and only
//! [`Fix::offered`] turns it into text. A command that cuts off the default route, a peer or an SSH connection is not
//! offered ([`lifelines`]).

pub mod lifelines;

use self::lifelines::Lifelines;

/// The effect of a command on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The device becomes a port of another, or leaves the network namespace: its addresses and routes stop working.
    Move,
    /// The device is taken down, or deleted.
    Down,
}

impl Effect {
    const fn doing(self) -> &'static str {
        match self {
            Self::Move => "moving it",
            Self::Down => "taking it down",
        }
    }
}

/// Commands that fix a problem, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fix {
    commands: Vec<String>,
    touched: Vec<(String, Effect)>,
}

impl Fix {
    /// Appends a command that neither moves a device nor takes one down.
    pub fn then(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// Appends the command that makes `device` a port of `bridge`.
    pub fn then_join(self, device: &str, bridge: &str) -> Self {
        let command = format!("ip link set dev {device} master {bridge}");
        self.then_touch(device, Effect::Move, command)
    }

    /// Appends a command that has this effect on `device`.
    pub fn then_touch(mut self, device: &str, effect: Effect, command: String) -> Self {
        self.touched.push((device.into(), effect));
        self.then(command)
    }

    /// The commands, or why they are not offered: a command would cut off a device of `lifelines`.
    pub fn offered(&self, lifelines: &Lifelines) -> String {
        self.withheld(lifelines).unwrap_or_else(|| self.commands.join(" && "))
    }

    /// Why the commands are not offered, and the alternative that cuts nothing off; `None`: they are offered.
    pub fn withheld(&self, lifelines: &Lifelines) -> Option<String> {
        self.touched.iter().find_map(|(device, effect)| {
            let (why, doing) = (lifelines.of(device)?, effect.doing());
            Some(format!(
                "{device} {why}, and {doing} would cut this machine off: leave it unchanged, and \
                 let the sendbox shape routed packets with box.forward = \"route\" \
                 (docs/operate/networks.md)"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn a_cut_lifeline_takes_all_commands_along() {
        let fix = Fix::default().then("ip link add br0 type bridge").then_join("eth0", "br0");
        let free = Lifelines::default();
        assert_eq!(
            fix.offered(&free),
            "ip link add br0 type bridge && ip link set dev eth0 master br0"
        );
        let held = Lifelines::holding("eth0", "carries the default route");
        for effect in [Effect::Move, Effect::Down] {
            let fix = Fix::default().then_touch("eth0", effect, "ip link set dev eth0 X".into());
            let said = fix.offered(&held);
            assert!(said.starts_with("eth0 carries the default route, and "), "{said}");
            assert!(said.contains(effect.doing()) && !said.contains("ip link"), "{said}");
            assert!(said.contains("box.forward = \"route\""), "{said}");
        }
        let other = Fix::default().then_join("eth1", "br0").offered(&held);
        assert_eq!(other, "ip link set dev eth1 master br0");
    }

    /// All files of Rust below a folder.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
        entries.flat_map(of).filter(|path| path.extension().is_some_and(|it| it == "rs")).collect()
    }

    #[test]
    fn only_this_module_builds_disconnecting_commands() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for folder in ["host/src", "app/src"] {
            for path in sources(&crates.join(folder)) {
                let text = fs::read_to_string(&path).unwrap();
                let product = text.split("mod tests {").next().unwrap();
                let is_test = path.ends_with("tests.rs");
                let is_ours = is_test || path.ends_with("host/src/fix.rs");
                for line in product.lines().filter(|line| line.contains("ip link set")) {
                    let cuts = [" master ", "nomaster", " down", " netns "];
                    let cuts = cuts.iter().any(|word| line.contains(word));
                    assert!(is_ours || !cuts, "{}: {line}", path.display());
                }
            }
        }
    }
}
