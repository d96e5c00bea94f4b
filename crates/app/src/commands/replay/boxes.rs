//! Prints what boxes have recorded.

use std::fmt::Write;
use std::process::ExitCode;

use forebay_host::daemon::record::{Moment, Told};
use forebay_host::log::events::EVENTS;
use serde_json::{Value, json};

use super::Replay;
use crate::commands::{BadInput, print};

/// Most moments that a table shows; the JSON document has all.
const MOMENTS_MAX: usize = 200;

impl Replay {
    /// Prints the events of the recording.
    pub(super) fn execute_of_boxes(self) -> anyhow::Result<ExitCode> {
        let recording = Told::read(&self.file).map_err(|error| BadInput(error.to_string()))?;
        print(&if self.json { document(&recording, &Value::Null) } else { told(&recording) })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The recording, and its simulation if there is one, as JSON.
pub fn document(recording: &Told, simulated: &Value) -> String {
    let moment = |it: &Moment| json!({ "at_s": it.at_s, "whom": it.whom, "what": it.what });
    let path = |(bundle, path): &(String, String)| json!({ "bundle": bundle, "path": path });
    let document = json!({
        "about": recording.about,
        "story": recording.story.iter().map(moment).collect::<Vec<_>>(),
        "moments_left_out": recording.moments_left_out,
        "paths": recording.paths.iter().map(path).collect::<Vec<_>>(),
        "simulated": simulated,
    });
    format!("{document}\n")
}

/// The events of the recording, for people.
pub fn told(recording: &Told) -> String {
    let Told { about, looks, story, moments_left_out, paths, logged, .. } = recording;
    let (version, kernel) = (plain(&about.version), plain(&about.kernel));
    let took_s = about.took_s;
    let mut text = format!(
        "recorded by forebay {version} on Linux {kernel}: {looks} looks in {took_s:.0} s\n"
    );
    // Writing to a string cannot fail.
    for what in &about.left_out {
        let _ = writeln!(text, "left out: {}", plain(what));
    }
    text.push('\n');
    for Moment { at_s, whom, what } in story.iter().take(MOMENTS_MAX) {
        let _ = writeln!(text, "{at_s:>8.1} s  {}: {}", plain(whom), plain(what));
    }
    if story.len() > MOMENTS_MAX {
        let more = story.len() - MOMENTS_MAX;
        let _ = writeln!(text, "and {more} more (--json has them)");
    }
    if *moments_left_out > 0 {
        let _ = writeln!(text, "and {moments_left_out} more, which the recording does not have");
    }
    for (bundle, path) in paths {
        let _ = writeln!(text, "bundle {}: {path}", plain(bundle));
    }
    for event in EVENTS {
        if let Some(count) = logged.get(event.id) {
            let _ =
                writeln!(text, "log.txt: {count} x {} {}: {}", event.id, event.name, event.when);
        }
    }
    text
}

/// Text from elsewhere, without characters that move a terminal's cursor.
pub fn plain(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), "?")
}
