//! Text of the file: each value with a comment, and optional choices for the operator.

use std::path::Path;

use super::{Chosen, Wanted, list, quoted};
use crate::daemon::config::Role;

/// Longest line of a comment, in characters.
const WIDTH: usize = 100;

/// Whether a box of this role needs the key.
pub(super) fn is_required(role: Role, key: &str) -> bool {
    match key {
        "box.wan" | "box.listen" => true,
        "bundle.to" => role == Role::Receivebox,
        _ => false,
    }
}

/// The file's text.
pub(super) fn write(wanted: &Wanted, release: &str, chosen: &[Chosen], nat: &str) -> String {
    let mut file = File::default();
    let (role, version) = (wanted.role, env!("CARGO_PKG_VERSION"));
    file.comment(&format!(
        "A {role} for this machine, written by `forebay init` of forebay {version} on Linux {release}. After a \
         change: `forebay check-config FILE`, then `forebay doctor --config FILE`."
    ));
    file.text += "\n[box]\n";
    file.set("role", &quoted(role.name()));
    for it in chosen.iter().filter(|it| it.key.starts_with("box.")) {
        file.chosen(it);
    }
    file.offer("status_group", "\"adm\"", "Who may run `forebay status`, besides root.");

    file.text += "\n[[bundle]]\n";
    file.set("name", &quoted(&wanted.name));
    file.comment("Must be the same at both boxes.");
    file.set("id", &wanted.id.to_string());
    file.text.push('\n');
    file.comment(match role {
        Role::Sendbox => "The receivebox at the other site.",
        Role::Receivebox => "The sendbox at the other site.",
    });
    file.set("peer", &quoted(&peer(wanted)));
    match role {
        Role::Sendbox => of_sendbox(&mut file, wanted, chosen),
        Role::Receivebox => {
            for it in chosen.iter().filter(|it| it.key == "bundle.to") {
                file.chosen(it);
            }
            file.text.push('\n');
            file.comment("The sources at the other site, set by --from.");
            file.set("from", &list(&wanted.from));
        }
    }
    file.text.push('\n');
    file.comment("Must be the same key at both boxes, mode 0600.");
    file.set("key_file", &quoted(&key_file(&wanted.file, &wanted.key_file)));
    file.offer("nat", "\"source\"", nat);
    file.text.push('\n');
    file.comment("Metrics for Prometheus:");
    file.text += "# [metrics]\n# listen = \"127.0.0.1\"\n";
    file.text
}

fn of_sendbox(file: &mut File, wanted: &Wanted, chosen: &[Chosen]) {
    file.text.push('\n');
    file.comment("Destinations of the bundle's packets, set by --to.");
    file.set("to", &list(&wanted.to));
    match chosen.iter().find(|it| it.key == "bundle.from") {
        Some(from) => file.chosen(from),
        None => file.offer(
            "from",
            "[\"10.1.0.0/16\"]",
            "Sources of the bundle's packets; if absent, any.",
        ),
    }
    file.text.push('\n');
    file.comment(
        "Moves the queue of the path into the sendbox. `forebay list algorithms` shows \
                  all algorithms.",
    );
    file.set("cc", "\"copa\"");
    file.offer("max_rate", "\"900Mbit/s\"", "Maximum rate of the bundle.");
}

/// The other box as it appears in the file: without a default port.
pub(super) fn peer(wanted: &Wanted) -> String {
    let default = wanted.role.other().default_port();
    match wanted.peer.address() {
        Some(address) if address.port() == default => address.ip().to_string(),
        Some(address) => address.to_string(),
        None => {
            let text = wanted.peer.to_string();
            text.strip_suffix(&format!(":{default}")).unwrap_or(&text).into()
        }
    }
}

/// The name of the key file in the file: without a folder if both are in the same one.
fn key_file(file: &Path, key: &Path) -> String {
    let is_beside = file.parent() == key.parent();
    let name = key.file_name().filter(|_| is_beside).map(Path::new);
    name.unwrap_or(key).display().to_string()
}

#[derive(Default)]
struct File {
    text: String,
}

impl File {
    fn set(&mut self, key: &str, value: &str) {
        self.text += &format!("{key} = {value}\n");
    }

    /// A chosen value, or a commented-out example.
    fn chosen(&mut self, chosen: &Chosen) {
        let key = chosen.key.split_once('.').map_or(chosen.key, |(_, key)| key);
        self.text.push('\n');
        match &chosen.value {
            Some(value) => {
                self.comment(&chosen.why);
                self.set(key, value);
            }
            None => {
                self.comment(&format!("Open: {}.", chosen.why));
                self.text += &format!("# {key} = {}\n", example(key));
            }
        }
    }

    /// An optional key for the operator.
    fn offer(&mut self, key: &str, value: &str, what: &str) {
        self.text.push('\n');
        self.comment(what);
        self.text += &format!("# {key} = {value}\n");
    }

    /// A comment, wrapped into lines.
    fn comment(&mut self, text: &str) {
        let mut line = String::from("#");
        for word in text.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > 1 {
                self.text += &format!("{line}\n");
                line = "#".into();
            }
            line.push(' ');
            line += word;
        }
        self.text += &format!("{line}\n");
    }
}

/// Example value of an open key.
fn example(key: &str) -> &'static str {
    match key {
        "to" => "[\"10.2.0.0/16\"]",
        "listen" => "\"192.0.2.2\"",
        _ => "\"eth0\"",
    }
}
