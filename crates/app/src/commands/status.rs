//! `forebay status`: asking a running box or agent.

use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(feature = "host")]
use super::print;

/// The daemon to ask.
#[derive(clap::Args)]
pub struct Target {
    /// Control socket of the daemon: `box.control` in its configuration, or `agent --control`
    /// [default: every socket in /run/forebay].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Show the state of running boxes and agents, with reasons.
///
/// Exit code 1: no box or agent runs, or one does not answer; 2: no bundle has such a name.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay status\n  \
    forebay status --bundle berlin --json\n  \
    forebay status --schema")]
pub struct Status {
    #[command(flatten)]
    target: Target,
    /// Show only bundles whose names contain TEXT, or the one bundle with that name. More than 20
    /// bundles of a box have one line each.
    #[arg(long, value_name = "TEXT")]
    bundle: Option<String>,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of that document, with the meaning and unit of each field.
    #[arg(long, conflicts_with_all = ["bundle", "json", "socket"])]
    schema: bool,
}

/// Error for a daemon whose answer does not fit.
#[cfg(feature = "host")]
pub const ANOTHER_QUESTION: &str = "the daemon sent an answer to another request";

/// The status of all daemons that answered.
#[cfg(feature = "host")]
#[derive(Default, serde::Serialize, schemars::JsonSchema)]
#[schemars(title = "forebay status --json")]
pub struct Answers {
    /// Sendboxes and receiveboxes.
    pub boxes: Vec<forebay_host::daemon::status::Status>,
    /// Agents that decide for TCP connections of the kernel.
    pub agents: Vec<forebay_host::agent::status::AgentStatus>,
}

#[cfg(feature = "host")]
impl Answers {
    /// Keeps the bundle called `part`, or else each bundle whose name contains `part`. If there is none,
    /// the error offers similar names.
    fn keep_bundles(&mut self, part: &str) -> anyhow::Result<()> {
        let bundles = self.boxes.iter().flat_map(|it| &it.bundles);
        let names: Vec<&str> = bundles.map(|bundle| bundle.name.as_str()).collect();
        if !self.boxes.is_empty() && !names.iter().any(|name| name.contains(part)) {
            let near = forebay_core::spec::nearest_words(part, &names);
            let text =
                format!("--bundle {part:?}: allowed is a part of the name of a bundle{near}");
            return Err(super::BadInput(text).into());
        }
        let is_whole = names.contains(&part);
        for status in &mut self.boxes {
            let is_kept = |name: &str| if is_whole { name == part } else { name.contains(part) };
            status.bundles.retain(|bundle| is_kept(&bundle.name));
        }
        Ok(())
    }

    fn tables(&self) -> Vec<String> {
        let boxes = self.boxes.iter().map(|status| status.table());
        boxes.chain(self.agents.iter().map(|status| status.table())).collect()
    }
}

/// The state of a daemon that answers.
#[cfg(feature = "host")]
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
pub enum State {
    Box(forebay_host::daemon::status::Status),
    Agent(forebay_host::agent::status::AgentStatus),
}

#[cfg(feature = "host")]
pub type Answer = forebay_host::service::control::Answer<State>;

#[cfg(feature = "host")]
impl Target {
    /// The daemon at `socket`, or if `None`, every daemon with a socket in the usual folder.
    pub fn of(socket: Option<PathBuf>) -> Self {
        Self { socket }
    }

    /// The sockets of the daemons that are asked.
    pub fn sockets(&self) -> anyhow::Result<Vec<PathBuf>> {
        /// Folder of control sockets by default.
        const FOLDER: &str = "/run/forebay";
        if let Some(socket) = &self.socket {
            return Ok(vec![socket.clone()]);
        }
        let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let mut sockets: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
            .collect();
        sockets.sort();
        if sockets.is_empty() {
            anyhow::bail!(
                "no box or agent has a socket in {FOLDER}: start one, or name its socket with --socket"
            );
        }
        Ok(sockets)
    }

    pub fn ask(
        &self,
        request: forebay_host::service::control::Request,
    ) -> anyhow::Result<Vec<Answer>> {
        let mut sockets = self.sockets()?;
        if request == forebay_host::service::control::Request::Reload && self.socket.is_none() {
            // An agent has no configuration file to read again.
            sockets.retain(|socket| !forebay_host::service::control::is_agents(socket));
            anyhow::ensure!(!sockets.is_empty(), "no box runs here");
        }
        ask_all(&sockets, self.socket.is_some(), request)
    }

    /// The state of all daemons that are asked.
    pub fn status(&self) -> anyhow::Result<Answers> {
        use forebay_host::service::control::Request;
        let mut answers = Answers::default();
        for answer in self.ask(Request::Status)? {
            match answer {
                Answer::Status(state) => match *state {
                    State::Box(status) => answers.boxes.push(status),
                    State::Agent(status) => answers.agents.push(status),
                },
                Answer::Failed(reason) => anyhow::bail!(reason),
                Answer::Done(_) | Answer::Changed(_) => anyhow::bail!(ANOTHER_QUESTION),
            }
        }
        Ok(answers)
    }
}

/// The answers of all daemons at `sockets`. A killed daemon leaves its socket behind, and a stopped daemon does not
/// answer: unless it `is_named`, its failure counts only if no other daemon answers.
#[cfg(feature = "host")]
fn ask_all(
    sockets: &[PathBuf],
    is_named: bool,
    request: forebay_host::service::control::Request,
) -> anyhow::Result<Vec<Answer>> {
    let (mut answers, mut dead) = (Vec::new(), None);
    for path in sockets {
        match forebay_host::service::control::ask(path, request) {
            Ok(answer) => answers.push(answer),
            Err(error) => {
                use std::io::ErrorKind::{ConnectionRefused, TimedOut, WouldBlock};
                let kind = error.kind();
                let error =
                    anyhow::Error::new(error).context(format!("no answer on {}", path.display()));
                if is_named || ![ConnectionRefused, TimedOut, WouldBlock].contains(&kind) {
                    return Err(error);
                }
                // A stopped daemon may have traffic, unlike a killed one.
                if kind != ConnectionRefused {
                    eprintln!("warning: {error:#}");
                }
                dead = Some(error);
            }
        }
    }
    match dead {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(answers),
    }
}

#[cfg(feature = "host")]
impl Status {
    /// Prints the state of each daemon: tables, or `{"boxes": [..], "agents": [..]}`.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.schema {
            print(&schema())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut answers = self.target.status()?;
        if let Some(part) = &self.bundle {
            answers.keep_bundles(part)?;
        }
        if self.json {
            print(&format!("{}\n", serde_json::json!(answers)))?;
        } else {
            print(&answers.tables().join("\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The JSON Schema (draft 2020-12) of the output of `--json`.
#[cfg(feature = "host")]
fn schema() -> String {
    format!("{:#}\n", serde_json::json!(schemars::schema_for!(Answers)))
}

#[cfg(not(feature = "host"))]
mod without_host {
    use super::*;

    impl Status {
        /// Refuses the command, which this build lacks.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let _ = (self.target.socket, self.bundle, self.json, self.schema);
            Err(crate::commands::needs_host("status"))
        }
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use forebay_host::service::control::{ControlSocket, Request};
    use forebay_host::service::privileges::Confinement;
    use serde_json::Value;

    use super::*;

    /// The part of `schema` that `part` refers to, or `part`.
    fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
        match part["$ref"].as_str() {
            Some(place) => schema.pointer(place.trim_start_matches('#')).expect(place),
            None => part,
        }
    }

    /// Places where `value` does not fit `part` of `schema`; knows only the keywords that the schema of the
    /// status has.
    fn faults(schema: &Value, part: &Value, value: &Value, at: &str) -> Vec<String> {
        let part = resolved(schema, part);
        if let Some(choices) = part["anyOf"].as_array().or(part["oneOf"].as_array()) {
            let all = choices.iter().map(|choice| faults(schema, choice, value, at));
            return all.min_by_key(Vec::len).expect("a choice");
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let types = match &part["type"] {
            Value::Array(types) => types.clone(),
            one => vec![one.clone()],
        };
        let is_of = |name: &Value| name == kind || name == "number" && kind == "integer";
        if !types.iter().any(is_of) {
            return vec![format!("{at} is {kind}, not {}", part["type"])];
        }
        let mut found = Vec::new();
        for (key, inner) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{key}");
            match part["properties"].get(key) {
                Some(property) => found.extend(faults(schema, property, inner, &at)),
                None => found.push(format!("{at} is not described")),
            }
        }
        for key in part["required"].as_array().into_iter().flatten() {
            if value.get(key.as_str().unwrap()).is_none() {
                found.push(format!("{at} has no {key}"));
            }
        }
        for (place, element) in value.as_array().into_iter().flatten().enumerate() {
            let items = part["prefixItems"].get(place).unwrap_or(&part["items"]);
            found.extend(faults(schema, items, element, &format!("{at}[{place}]")));
        }
        found
    }

    /// A document with something in each list and each field that may be null.
    fn full() -> Value {
        use forebay_core::record::DecisionRecord;
        use forebay_host::agent::status::{
            AgentStatus, AlgorithmStatus, FlowStatus, RecordingStatus,
        };
        use forebay_host::daemon::Role;
        use forebay_host::daemon::status::{
            BundleStatus, PortStatus, ShapingStatus, ShareStatus, Status, TrialStatus,
            WatchingStatus,
        };
        let decision = DecisionRecord {
            rate_bps: Some(1),
            cwnd_bytes: Some(1),
            min_rtt_ns: Some(1),
            ..DecisionRecord::default()
        };
        let shaping = ShapingStatus {
            decisions: vec![decision],
            max_rate_bps: Some(1),
            share: Some(ShareStatus { guarantee_bps: Some(1), ..ShareStatus::default() }),
            alarm: Some("alarm".into()),
            flows: Some(1),
            ..ShapingStatus::default()
        };
        let bundle = BundleStatus {
            differences: Some(vec!["differs".into()]),
            shaping: Some(shaping),
            watching: Some(WatchingStatus::default()),
            ..BundleStatus::default()
        };
        let port = PortStatus { counters: vec![("captured".into(), 1)], ..PortStatus::default() };
        let mut status = Status::new(Role::Sendbox, true);
        status.uplink_bps = Some(1);
        status.trial = Some(TrialStatus { left_s: 1, what: "1 changed".into(), is_start: false });
        (status.ports, status.bundles) = (vec![port], vec![bundle, BundleStatus::default()]);
        let agent = AgentStatus {
            algorithms: vec![AlgorithmStatus::default()],
            recording: Some(RecordingStatus::default()),
            flows: vec![FlowStatus::default()],
            ..AgentStatus::default()
        };
        serde_json::to_value(Answers { boxes: vec![status], agents: vec![agent] }).unwrap()
    }

    #[test]
    fn documents_and_stored_schema_match_schema() {
        let text = schema();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/status.schema.json");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let renew = "forebay status --schema >docs/reference/status.schema.json";
        let schema: Value = serde_json::from_str(&text).unwrap();
        // The order of keys depends on the features of serde_json in the same build.
        let is_it = serde_json::from_str::<Value>(&written).is_ok_and(|written| written == schema);
        assert!(is_it, "docs/reference/status.schema.json is out of date: `{renew}`");
        let document = full();
        assert_eq!(faults(&schema, &schema, &document, "$"), Vec::<String>::new());
        // Each mistake is found.
        for (place, value, fault) in [
            ("/boxes/0/bundles/0/shaping/queue/bytes", serde_json::json!("1"), "not \"integer\""),
            ("/boxes/0/role", serde_json::json!(1), "role is integer"),
            ("/boxes/0/bundles/0/peer", serde_json::json!({"x": 1}), "peer.x is not described"),
        ] {
            let mut broken = document.clone();
            *broken.pointer_mut(place).unwrap() = value;
            let found = faults(&schema, &schema, &broken, "$");
            assert!(found.iter().any(|it| it.contains(fault)), "{place}: {found:?}");
        }
    }

    #[test]
    fn bundles_are_selected_by_part_of_name() {
        use forebay_host::daemon::Role;
        use forebay_host::daemon::status::{BundleStatus, Status};
        let named = |name: &str| BundleStatus { name: name.into(), ..BundleStatus::default() };
        let mut status = Status::new(Role::Receivebox, false);
        status.bundles = ["north-1", "north-2", "south-1"].map(named).to_vec();
        let mut answers = Answers { boxes: vec![status], agents: Vec::new() };
        answers.keep_bundles("north").unwrap();
        assert_eq!(answers.boxes[0].bundles.len(), 2);
        let error = answers.keep_bundles("west").unwrap_err();
        assert!(error.to_string().contains("--bundle \"west\""), "{error}");
        assert!(error.is::<super::super::BadInput>());
        let error = answers.keep_bundles("nort-1").unwrap_err().to_string();
        assert!(error.contains("; nearest") && error.contains("north-1"), "{error}");
    }

    #[test]
    fn every_schema_field_has_a_description() {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        let parts = schema["$defs"].as_object().unwrap().iter();
        for (name, part) in parts.chain([(&"document".to_string(), &schema)]) {
            for (field, described) in part["properties"].as_object().into_iter().flatten() {
                assert!(described["description"].is_string(), "{name}.{field}: {described}");
            }
        }
    }

    #[test]
    fn killed_daemon_does_not_hide_running_daemons() {
        let folder = tempfile::tempdir().unwrap();
        let [dead, alive] = ["dead.sock", "live.sock"].map(|name| folder.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        // A child that another test starts holds the socket until it has become its program.
        while std::os::unix::net::UnixStream::connect(&dead).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ask = |sockets: &[&PathBuf], is_named| {
            let sockets: Vec<PathBuf> = sockets.iter().map(|path| (*path).clone()).collect();
            ask_all(&sockets, is_named, Request::Status)
        };
        let mut server = ControlSocket::bind(&alive, &Confinement::default()).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.try_recv().is_err() {
                let here = forebay_host::service::control::Answer::<()>::Done("here".into());
                server.serve(|_| Some(here.clone()));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(ask(&[&dead, &alive], false).unwrap(), [Answer::Done("here".into())]);
        for (sockets, is_named) in [(&[&dead][..], false), (&[&dead, &alive], true)] {
            let error = ask(sockets, is_named).unwrap_err().to_string();
            assert!(error.contains("no answer on") && error.contains("dead.sock"), "{error}");
        }
        stop.send(()).unwrap();
        thread.join().unwrap();
    }
}
