//! Changes that a configuration would make to this machine, compared with its present state; nothing is
//! changed.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use forebay_core::bundle::keys::{KeyRing, PresharedKey};
use forebay_ebpf::Classes;
use nix::net::if_::if_nametoindex;
use serde::{Deserialize, Serialize};

use super::attempt;
use super::conditions::{Condition, Devices, Fault, NOT_SAID};
use super::config::{Config, ConfigError, DatapathKind, Forward, Role};
use super::keys::reader::Loaded;
use super::keys::{self, KeyFileError};
use super::reload::difference;
use super::starting::DEFAULT_USER;
use super::status::Status;
use super::{machine_addresses, routed, udp};
use crate::egress;
use crate::filters::{self, Filter};
use crate::foreign_python;
use crate::offload;
use crate::port::xdp_program;
use crate::service::control::{Answer, Request, ask};
use crate::service::outcome::{Fate, Outcome};
use crate::service::privileges;
use crate::triangle::{Names, PRIORITY};

/// One planned change of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// The changed object.
    pub object: String,
    /// Present state of the object.
    pub now: String,
    /// State of the object after the change.
    pub then: String,
}

/// The box that already runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Process of the box.
    pub pid: u32,
    /// The configuration file of the running box.
    pub file: String,
    /// Outcome by the difference, or the reason why the box must be restarted.
    pub outcome: Outcome,
}

/// Changes that a configuration would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The configuration file.
    pub file: String,
    /// The box that the file is for.
    pub role: Role,
    /// The box that the file would change or replace; `None`: a box would be started.
    pub running: Option<Running>,
    /// Changes of devices, programs, qdiscs, filters, addresses, sockets and files; none if a running box
    /// goes on.
    pub steps: Vec<PlannedStep>,
    /// Effects on traffic meanwhile.
    pub traffic: Vec<String>,
    /// Obstacles for the box, with their remedies.
    pub blockers: Vec<String>,
    /// Parts of the machine that could not be examined, and why.
    pub unseen: Vec<String>,
}

impl Plan {
    /// Examines the machine and plans the changes for each box of the configuration `file`.
    ///
    /// # Errors
    ///
    /// The errors in the file.
    pub fn of(file: &Path) -> Result<Vec<Self>, ConfigError> {
        let text = Config::read(file)?;
        let boxes = Config::parse_all(file, &text)?;
        Ok(boxes.into_iter().map(|config| Self::of_box(file, &text, config)).collect())
    }

    fn of_box(file: &Path, text: &str, config: Config) -> Self {
        let mut plan = Self {
            file: file.display().to_string(),
            role: config.role,
            running: None,
            steps: Vec::new(),
            traffic: Vec::new(),
            blockers: Vec::new(),
            unseen: Vec::new(),
        };
        let (before, config) = match plan.look_for_running(&config, text) {
            Some([before, after]) => (Some(before), after),
            None => (None, config),
        };
        match &plan.running {
            Some(running) if running.outcome.refused.is_empty() => {
                plan.traffic = meanwhile_reloaded(&running.outcome);
            }
            running => {
                plan.traffic = meanwhile_started(&config, running.is_some());
                plan.look_at_machine(&config, before.as_ref());
            }
        }
        plan.look_at_way_out(&config);
        plan.look_at_keys(&config);
        plan
    }

    /// Finds the running box; returns its configuration in force, and the new one from the file.
    fn look_for_running(&mut self, config: &Config, text: &str) -> Option<[Config; 2]> {
        let socket = config.control.display();
        let status: Status = match ask(&config.control, Request::Status) {
            Ok(Answer::Status(status)) => *status,
            Ok(_) => {
                self.unseen.push(format!("the box at {socket}: the answer has no status"));
                return None;
            }
            Err(error) => {
                use io::ErrorKind::{ConnectionRefused, NotFound};
                if ![ConnectionRefused, NotFound].contains(&error.kind()) {
                    self.unseen.push(format!("whether a box runs: {socket}: {error}"));
                }
                return None;
            }
        };
        let file = Path::new(&status.config_file);
        let in_force = match ask::<Status>(&config.control, Request::Config) {
            Ok(Answer::Done(in_force)) => Ok(in_force),
            // Users other than root and the box's own get the current contents of the file.
            _ => {
                let what = "the configuration in force, which only root may read: the plan compares with \
                     its file";
                self.unseen.push(what.into());
                Config::read(file)
            }
        };
        self.unseen.push("whether keys differ from those in force".into());
        // Parsed as if it were in the place of that file, where its relative paths start.
        let loaded = |text: &str| loaded(file, text, &config.name);
        let both = in_force.and_then(|before| Ok([loaded(&before)?, loaded(text)?]));
        match both {
            Ok([before, after]) => {
                let (mut outcome, _) = difference::between(&before, &after);
                let files = [&before, &after].map(|loaded| files_in_python(&loaded.config));
                let new = files[1].difference(&files[0]);
                outcome.refused.extend(new.map(|file| {
                    format!(
                        "{file} runs in a child that a box starts only at its own start: start \
                             the box again"
                    )
                }));
                let (pid, file) = (status.pid, status.config_file);
                self.running = Some(Running { pid, file, outcome });
                Some([before.config, after.config])
            }
            Err(error) => {
                self.unseen.push(format!("the changes of the running box: {error}"));
                None
            }
        }
    }

    fn look_at_machine(&mut self, config: &Config, before: Option<&Config>) {
        let (datapath, why) = attempt::settled(config);
        if let Some(why) = why {
            match privileges::check() {
                Ok(()) => self.step("box.datapath", "\"auto\"".into(), &why),
                Err(error) => self.unseen.push(format!(
                    "the choice of box.datapath = \"auto\": \
                                                        {error}"
                )),
            }
        }
        let config = &Config { datapath, ..config.clone() };
        for (condition, held) in Devices::of(config).examine() {
            if let Err(fault) = held {
                self.note(condition, fault);
            }
        }
        match config.role {
            Role::Sendbox if datapath == DatapathKind::Kernel => {
                self.plan_classes(config);
            }
            Role::Sendbox if config.forward == Forward::Route => self.plan_triangle(config),
            Role::Sendbox => self.plan_sendbox(config, before),
            Role::Receivebox => self.plan_receivebox(config, before),
        }
        let others = "other qdiscs, filters";
        self.step(others, "unchanged".into(), "unchanged: the box adds and changes none");
        self.step("addresses", "unchanged".into(), "unchanged: the box adds none");
        self.plan_sockets(config, before);
        self.plan_process(config);
    }

    fn note(&mut self, condition: &Condition, fault: Fault) {
        let (name, Fault { found, fix }) = (condition.name, fault);
        if found.starts_with(NOT_SAID) {
            self.unseen.push(format!("{name}: {found}"));
        } else {
            let reason = condition.reason;
            self.blockers.push(format!("{name}: {found}: {reason}; fix: {fix}"));
        }
    }

    fn step(&mut self, object: &str, now: String, then: &str) {
        self.steps.push(PlannedStep { object: object.into(), now, then: then.into() });
    }

    fn plan_sendbox(&mut self, config: &Config, before: Option<&Config>) {
        let lan = config.lan.as_deref().unwrap_or_default();
        let wan = &config.wan;
        let then = "the program `capture`, held by a link: it ends with the process";
        self.program(lan, then, before);
        self.offloads(lan);
        let then = "an AF_XDP socket that receives, on queue 0";
        self.step(&format!("{lan}: sockets"), "none of this box".into(), then);
        let then = "an AF_XDP socket that transmits, on queue 0";
        self.step(&format!("{wan}: sockets"), "none of this box".into(), then);
        self.qdisc(wan, "unchanged: bundles wait in queues of the box and bypass this qdisc");
    }

    /// For a sendbox that takes packets through its process, on a machine that routes.
    fn plan_triangle(&mut self, config: &Config) {
        let Names { namespace, entrance, exit, .. } = routed::triangle_of(config).names();
        let index = |device: &str| if_nametoindex(device).is_ok();
        let is_there = index(&entrance) && index(&exit);
        let now = if is_there { "there" } else { "not there" };
        let then = format!(
            "veths, the network namespace {namespace} with a bridge, and a policy rule of priority \
             {PRIORITY}, which routes packets to the bundles' destinations through these: all end \
             with the process, or with forebay-triangle@"
        );
        self.step(&format!("{entrance}, {exit}"), now.into(), &then);
        let then = "the program `capture` and AF_XDP sockets: they end with the process";
        self.step(&format!("{exit}: program, sockets"), "none of this box".into(), then);
    }

    /// For a sendbox that keeps packets in the kernel.
    fn plan_classes(&mut self, config: &Config) {
        let wan = &config.wan;
        let then = "the programs `classify` (tcx egress, before other programs), `departed`, \
                    `refused` and `dropped` (tracepoints), held by links: they end with the \
                    process";
        self.step(&format!("{wan}: programs"), "none of this box".into(), then);
        let queues = match config.kernel_qdisc {
            None => format!("{} queues", Classes::leaves(config.bundles.len())),
            Some(qdisc) => qdisc.name().into(),
        };
        let then = format!(
            "htb, with a class and {queues} for each bundle; the present qdisc returns when the \
             box stops"
        );
        self.qdisc(wan, &then);
    }

    fn qdisc(&mut self, wan: &str, then: &str) {
        let now = match egress::root_qdisc(wan) {
            Ok(Some(qdisc)) => qdisc.kind,
            Ok(None) => "none".into(),
            Err(error) => return self.unseen.push(format!("{wan}: qdisc: {error}")),
        };
        self.step(&format!("{wan}: qdisc"), now, then);
    }

    fn plan_receivebox(&mut self, config: &Config, before: Option<&Config>) {
        let then = "the program `sampler`, or `merged` at tc if packets are merged first: it \
                    passes all packets, is held by a link, and ends with the process";
        self.program(&config.wan, then, before);
        self.offloads(&config.wan);
    }

    fn program(&mut self, device: &str, then: &str, before: Option<&Config>) {
        let is_theirs = |it: &Config| it.lan.as_deref() == Some(device) || it.wan == device;
        let now = match xdp_program(device) {
            Ok(Some(_)) if before.is_some_and(is_theirs) => "the running box's".into(),
            Ok(Some(_)) => {
                let fix = format!("stop its owner, or `ip link set dev {device} xdp off`");
                self.blockers
                    .push(format!("{device}: another XDP program is attached; fix: {fix}"));
                "another owner's program".into()
            }
            Ok(None) => "none".into(),
            Err(error) => return self.unseen.push(format!("{device}: XDP program: {error}")),
        };
        self.step(&format!("{device}: XDP program"), now, then);
    }

    fn offloads(&mut self, device: &str) {
        match offload::active(device) {
            Ok(active) => {
                let active: Vec<String> = active.iter().map(ToString::to_string).collect();
                let now = if active.is_empty() { "off".into() } else { active.join(" ") };
                let then = "unchanged: the box switches offloads off again that the kernel switches on \
                     with the program";
                self.step(&format!("{device}: offloads"), now, then);
            }
            Err(error) => self.unseen.push(format!("{device}: offloads: {error}")),
        }
    }

    fn plan_messages(&mut self, listen: SocketAddr, config: &Config, before: Option<&Config>) {
        let now = match udp::holder(listen) {
            Some(_) if before.is_some_and(|it| it.listen.contains(&listen)) => {
                "the running box's".into()
            }
            Some(holder) => {
                let fix = "another port for one of the two";
                self.blockers.push(format!("box.listen {listen}: {holder} uses it; fix: {fix}"));
                format!("{holder} uses it")
            }
            None => "free".into(),
        };
        self.step(&format!("UDP {listen}"), now, "a socket of the box, for messages");
        if let Ok(own) = machine_addresses()
            && !own.contains(&listen.ip())
        {
            let (ip, wan) = (listen.ip(), &config.wan);
            self.blockers.push(format!(
                "box.listen {ip}: not an address of this machine; fix: `ip address add` it to the \
                 bridge or to {wan}, or set box.listen to an existing address"
            ));
        }
    }

    fn plan_sockets(&mut self, config: &Config, before: Option<&Config>) {
        for listen in &config.listen {
            self.plan_messages(*listen, config, before);
        }
        if let Some(metrics) = config.metrics {
            self.plan_metrics(metrics, config, before);
        }
        let control = &config.control;
        let now = if control.exists() { "there" } else { "not there" };
        let then = "a socket of mode 0600, or 0660 with box.status_group";
        self.step(&format!("control socket {}", control.display()), now.into(), then);
    }

    fn plan_metrics(&mut self, listen: SocketAddr, config: &Config, before: Option<&Config>) {
        let is_theirs = before.is_some_and(|it| it.metrics == Some(listen));
        let now = match TcpListener::bind(listen) {
            Ok(_) => "free".into(),
            Err(_) if is_theirs => "the running box's".into(),
            Err(error) => {
                let fix = "an address of this machine with a free port";
                let key = config.key("metrics.listen");
                self.blockers.push(format!("{key} {listen}: {error}; fix: {fix}"));
                error.to_string()
            }
        };
        self.step(&format!("TCP {listen}"), now, "a socket of the box, for metrics");
    }

    fn plan_process(&mut self, config: &Config) {
        let now = self.running.as_ref().map_or("none".into(), |it| format!("pid {}", it.pid));
        let user = config.user.as_deref().unwrap_or(DEFAULT_USER);
        let then = format!(
            "`forebay {}` as user {user} if that account exists, with `forebay observe` (watches \
             devices), `forebay look-up` (names of peers) and, unless the user is root, `forebay \
             read-keys`",
            config.role
        );
        self.step("processes", now, &then);
        for file in files_in_python(config) {
            let then = "a child without privileges, and `forebay keep-python`, which starts it again if it ends";
            self.step(&format!("python3 -m forebay.live {file}"), "none".into(), then);
        }
        if let Some(trace) = &config.trace {
            let file = trace.file.display();
            let (now, then) = match trace.file.exists() {
                true => ("there", format!("a new file; the present file becomes {file}.1")),
                false => ("not there", "a new file".to_string()),
            };
            self.step(&format!("trace {file}"), now.into(), &then);
        }
    }

    /// Checks whether a running box sees all packets, if they stay in the kernel.
    fn look_at_way_out(&mut self, config: &Config) {
        let is_in_kernel = config.role == Role::Sendbox && config.datapath != DatapathKind::User;
        if self.running.is_none() || !is_in_kernel {
            return;
        }
        match filters::ahead_of_classes(&config.wan) {
            Ok(None) => {}
            Ok(Some(Filter { found, fix })) => {
                self.traffic.push(format!("{found}; fix: {fix}."));
            }
            Err(error) => {
                self.unseen.push(format!("{}: programs at its egress: {error}", config.wan));
            }
        }
    }

    fn look_at_keys(&mut self, config: &Config) {
        for bundle in &config.bundles {
            match keys::load(&bundle.key_file) {
                Ok(_) => {}
                Err(KeyFileError::Io { file, error })
                    if error.kind() == io::ErrorKind::PermissionDenied =>
                {
                    self.unseen.push(format!("the key file {}: {error}", file.display()));
                }
                Err(error) => self.blockers.push(format!("bundle {}: {error}", bundle.name)),
            }
        }
    }
}

/// The Python files with classes that control bundles.
fn files_in_python(config: &Config) -> BTreeSet<&str> {
    let shapings = config.bundles.iter().filter_map(|bundle| bundle.shaping.as_ref());
    shapings.filter_map(|shaping| foreign_python::named::file(&shaping.cc)).collect()
}

/// A configuration without its real keys.
fn loaded(file: &Path, text: &str, name: &str) -> Result<Loaded, ConfigError> {
    let config = Config::parse_of(file, text, name)?;
    let keys = vec![KeyRing::new(PresharedKey::new([0; 32]), None); config.bundles.len()];
    Ok(Loaded { text: text.into(), config, keys })
}

fn meanwhile_reloaded(outcome: &Outcome) -> Vec<String> {
    let has = |fate: Fate| outcome.bundles.iter().any(|bundle| bundle.fate == fate);
    let all = [
        (
            Fate::Unchanged,
            "Unchanged bundles continue: the box keeps their packets, rates and sessions.",
        ),
        (Fate::Changed, "Changed bundles continue at their rates, with their queued packets."),
        (
            Fate::Renewed,
            "Restarted bundles send their queued packets at once. Until they have measured again, \
             their packets leave unshaped, or at max_rate or their share.",
        ),
        (
            Fate::Added,
            "Added bundles leave unshaped, or at max_rate or their share, until they have \
             measured.",
        ),
        (
            Fate::Removed,
            "Removed bundles send their queued packets at once; then the kernel forwards their \
             packets.",
        ),
    ];
    all.into_iter().filter(|(fate, _)| has(*fate)).map(|(_, text)| text.into()).collect()
}

fn meanwhile_started(config: &Config, is_running: bool) -> Vec<String> {
    if config.role == Role::Receivebox {
        let mut traffic =
            vec!["The kernel forwards all packets, before, during and after the change.".into()];
        if is_running {
            traffic.push(
                "Until it runs again, its sendboxes receive no reports and leave their bundles \
                 unshaped."
                    .into(),
            );
        }
        return traffic;
    }
    let kernel = match config.forward {
        Forward::Bridge => "the bridge forwards",
        Forward::Route => "the machine routes",
    };
    let now = if is_running {
        format!(
            "The running box sends its queued packets within 1.5 s and ends. Until it runs again, \
             {kernel} all packets, unshaped."
        )
    } else {
        format!("While the box does not run, {kernel} all packets as now.")
    };
    let to: Vec<String> =
        config.bundles.iter().flat_map(|bundle| &bundle.to).map(ToString::to_string).collect();
    vec![
        now,
        format!(
            "While it runs, packets to {} pass the queues of the box; all other packets leave as \
             now.",
            to.join(", ")
        ),
        "Bundles leave unshaped, or at max_rate or their share, until they have measured their \
         paths."
            .into(),
    ]
}

/// Text for people.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, role, .. } = self;
        match &self.running {
            None => writeln!(f, "{file}: a {role} would be started")?,
            Some(Running { pid, file: own, outcome }) => {
                let how = match (outcome.refused.is_empty(), outcome.is_nothing()) {
                    (true, true) => "changes nothing of",
                    (true, false) => "would change",
                    (false, _) => "needs a restart of",
                };
                writeln!(f, "{file}: {how} the {role} running with {own} (pid {pid})")?;
                f.write_str(&outcome.listing())?;
                outcome.refused.iter().try_for_each(|reason| writeln!(f, "  {reason}"))?;
            }
        }
        for PlannedStep { object, now, then } in &self.steps {
            writeln!(f, "  {object}\n      now:  {now}\n      then: {then}")?;
        }
        for (title, lines) in [
            ("traffic", &self.traffic),
            ("obstacles", &self.blockers),
            ("could not be checked", &self.unseen),
        ] {
            if !lines.is_empty() {
                writeln!(f, "{title}:")?;
            }
            lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::service::control::ControlSocket;
    use crate::service::privileges::Confinement;

    fn file(folder: &Path) -> std::path::PathBuf {
        let text = "[box]\nrole = \"sendbox\"\nlan = \"no-lan\"\nwan = \"no-wan\"\nlisten = \
                    \"192.0.2.1\"\ncontrol = \"box.sock\"\n\n[[bundle]]\nname = \"b\"\nid = 1\npeer = \
                    \"192.0.2.2\"\nto = [\"10.1.2.0/24\"]\nkey_file = \"b.key\"\ncc = \"copa\"\n";
        let file = folder.join("box.toml");
        fs::write(&file, text).unwrap();
        keys::generate(&folder.join("b.key")).unwrap();
        file
    }

    #[test]
    fn plan_of_first_start_lists_obstacles() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        let plan = only(Plan::of(&file).unwrap());
        assert_eq!(plan.running, None);
        let objects: Vec<&str> = plan.steps.iter().map(|step| step.object.as_str()).collect();
        for object in
            ["no-lan: sockets", "other qdiscs, filters", "addresses", "UDP 192.0.2.1:61475"]
        {
            assert!(objects.contains(&object), "{object}: {objects:?}");
        }
        let blockers = plan.blockers.join("\n");
        assert!(blockers.contains("no device no-lan"), "{blockers}");
        assert!(blockers.contains("192.0.2.1: not an address of this machine"), "{blockers}");
        assert!(!blockers.contains("b.key"), "{blockers}");
        let text = plan.to_string();
        assert!(text.contains("a sendbox would be started") && text.contains("then: "), "{text}");
        let document = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&document).unwrap(), plan);
        fs::remove_file(folder.path().join("b.key")).unwrap();
        assert!(only(Plan::of(&file).unwrap()).blockers.join("\n").contains("b.key: no such file"));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("lan =", "datapath = \"kernel\"\nlan =", 1)).unwrap();
        let plan = only(Plan::of(&file).unwrap());
        let objects: Vec<&str> = plan.steps.iter().map(|step| step.object.as_str()).collect();
        assert!(objects.contains(&"no-wan: programs"), "{objects:?}");
        assert!(!objects.contains(&"no-lan: sockets"), "{objects:?}");
        fs::write(&file, text.replacen("lan =", "datapath = \"auto\"\nlan =", 1)).unwrap();
        let plan = only(Plan::of(&file).unwrap());
        let told = plan.steps.iter().find(|step| step.object == "box.datapath");
        let (_, why) = attempt::settled(&Config::load(&file).unwrap());
        let expected = why.filter(|_| privileges::check().is_ok());
        assert_eq!(told.map(|step| step.then.clone()), expected, "as the box will find it");
        fs::write(&file, "role = 1\n").unwrap();
        assert!(Plan::of(&file).is_err());
    }

    fn only(mut plans: Vec<Plan>) -> Plan {
        assert_eq!(plans.len(), 1, "{plans:?}");
        plans.remove(0)
    }

    /// The plan of a file next to a running box, which this function serves.
    fn beside_a_box(own: &Path, file: &Path) -> Plan {
        let socket = Config::load(own).unwrap().control;
        let mut control = ControlSocket::bind(&socket, &Confinement::default()).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let own = own.to_owned();
        let server = std::thread::spawn(move || {
            while stopped.try_recv().is_err() {
                control.serve(|request| {
                    Some(match request {
                        Request::Status => {
                            let config_file = own.display().to_string();
                            let status = Status::new(Role::Sendbox, false);
                            Answer::Status(Box::new(Status { config_file, ..status }))
                        }
                        _ => Answer::Done(fs::read_to_string(&own).unwrap()),
                    })
                });
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let plan = only(Plan::of(file).unwrap());
        stop.send(()).unwrap();
        server.join().unwrap();
        plan
    }

    #[test]
    fn plan_for_running_box_shows_difference_or_restart() {
        let folder = tempfile::tempdir().unwrap();
        let own = file(folder.path());
        let text = fs::read_to_string(&own).unwrap();
        let other = folder.path().join("other.toml");
        fs::write(&other, text.replace("cc =", "max_rate = \"9Mbit/s\"\ncc =")).unwrap();
        let plan = beside_a_box(&own, &other);
        assert_eq!(plan.steps, [], "nothing of the machine changes");
        let told = plan.to_string();
        assert!(told.contains("would change the sendbox running with "), "{told}");
        assert!(told.contains("  bundle b changed: max_rate none -> 9Mbit/s\n"), "{told}");
        assert!(told.contains("continue at their rates"), "{told}");
        fs::write(&other, text.replace("no-wan", "wan")).unwrap();
        let told = beside_a_box(&own, &other).to_string();
        assert!(told.contains("needs a restart of") && told.contains("box.wan no-wan -> wan"));
        assert!(told.contains("within 1.5 s") && told.contains("no-lan: sockets"), "{told}");
        let told = beside_a_box(&own, &own).to_string();
        assert!(told.contains("changes nothing of the sendbox"), "{told}");
    }
}
