//! Finds plans and the files that they name: on disk, else among those built in.

use std::io::Read;
use std::path::{Path, PathBuf};

use forebay_core::link::{DrawnPath, PathModel, Trace};
use forebay_core::spec::{Spec, nearest_words, one_of};
use forebay_core::traffic::SizeCdf;

use super::PlanError;

/// Largest plan, CDF or trace text that is read: hundreds of times the largest shipped one.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Word for traces in errors.
const TRACE: &str = "trace";

macro_rules! plans {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../plans/", $name, ".toml")))),*]
    };
}

/// Name and text of every plan under `plans/`, so that the binary works without the repository.
pub static PLANS: &[(&str, &str)] = plans![
    "bundler/arms",
    "bundler/arms_in_time",
    "bundler/main",
    "bundler/offered_load",
    "bundler/low_load",
    "bundler/sendbox_cc",
    "bundler/endhost_cc",
    "bundler/proxy",
    "bundler/fifo_control",
    "bundler/competing_bundles",
    "bundler/fq_codel_delay",
    "bundler/main_quic",
    "bundler/strict_priority",
    "bundler/rate_stability",
    "bundler/rate_stability_video",
    "bundler/video_transports",
    "bundler/epoch_size",
    "bundler/fairness",
    "bundler/equivalence",
    "bundler/uplink_shares",
    "bundler/real_paths",
    "bundler/real_paths_routed",
    "bundler/draft",
    "bundler/queue_shift",
    "bundler/queue_shift_both",
    "bundler/bulk_flow",
    "bundler/multipath",
    "bundler/outside_flow",
    "bundler/paths",
    "bundler/reverse_path",
    "bundler/elastic_cross",
    "bundler/elastic_cross_quic",
    "bundler/elastic_web",
    "bundler/dynamic_cross",
    "bundler/inelastic_cross",
    "bundler/false_positives",
    "bundler/bundles_leave",
    "bundler/aqm",
    "bundler/clocks",
    "bundler/clocks_laws",
    "bundler/blind_share",
    "bundler/ttl_attack",
    "bundler/measurement",
    "bundler/faults",
    "bundler/hostile_messages",
    "bundler/dynamics/start",
    "bundler/dynamics/cbr_then_greedy",
    "bundler/dynamics/idle",
    "bundler/dynamics/rtt_step",
    "bundler/dynamics/rate_step",
    "bundler/dynamics/long",
    "bundler/dynamics/shallow",
    "bundler/dynamics/reverse_path",
    "bundler/dynamics/lossy_path",
    "bundler/dynamics/wandering",
    "bundler/dynamics/two_bundles",
    "bundler/dynamics/four_bundles",
    "ccperf/base",
    "ccperf/steady_state_single_flow",
    "ccperf/steady_state_synchronous_fairness",
    "ccperf/steady_state_start_time_fairness",
    "ccperf/steady_state_rtt_fairness",
    "ccperf/responsiveness_step",
    "ccperf/responsiveness_pulse_wave",
    "ccperf/loss_resilience",
    "ccperf/shallow_buffers",
    "ccperf/deep_buffers",
    "ccperf/active_queue_management",
    "ccperf/replay_rate_trace",
    "ccperf/random_walk",
    "ccperf/competition_duel",
    "ccperf/competition_cross_traffic",
    "ccperf/parking_lot",
    "rfc9743/base",
    "rfc9743/collapse",
    "rfc9743/feedback_loss",
    "rfc9743/buffers",
    "rfc9743/paths",
    "rfc9743/fairness",
    "rfc9743/short_flows",
    "rfc9743/competition",
    "rfc9743/real_time",
    "rfc9743/tunnels",
    "rfc9743/wireless",
    "rfc9743/acknowledgements",
    "rfc9743/aqm",
    "rfc9743/policer",
    "rfc9743/varying_delay",
    "rfc9743/constrained",
    "rfc9743/high_delay",
    "rfc9743/misbehaving_senders",
    "rfc9743/misbehaving_receivers",
    "rfc9743/reordering",
    "rfc9743/transients",
    "rfc9743/path_changes",
    "rfc9743/data_centre",
    "l4s/coexistence",
    "paths/leo_handovers",
    "media/base",
    "media/queue",
    "media/l4s",
    "media/step",
    "bulk/base",
    "bulk/single_flow",
    "bulk/scavenger",
    "bulk/latecomer",
    "scale/deployment",
    "scale/share",
    "scale/many_bundles",
    "scale/sendbox",
    "world/arms",
    "world/unsteady_bulk",
    "world/cellular_bulk",
    "world/radio_bulk",
    "world/wired_bulk",
    "world/downloads_bulk",
    "world/aqm_bulk",
    "world/cross_bulk",
    "world/cellular_web",
    "world/alone_web",
    "world/cross_web",
    "world/cellular_mixed",
    "world/alone_mixed",
    "world/cross_mixed",
    "world/downloads_mixed",
    "platforms/behaviour",
    "platforms/cpu",
    "platforms/programs",
    "platforms/latency",
    "platforms/scale",
    "platforms/safety",
    "platforms/aggregate_algorithms",
    "platforms/simulated",
];

/// Whether a built-in plan has this name.
pub fn is_builtin(name: &str) -> bool {
    PLANS.iter().any(|(known, _)| *known == name)
}

/// A text and its origin.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name in errors.
    pub file: String,
    /// The folder that its relative paths start from; `None` for a built-in text.
    pub folder: Option<PathBuf>,
    /// The text.
    pub text: String,
}

impl Source {
    /// The plan called `reference`: a path, or a name such as `bundler/main` under `./plans` or
    /// built in.
    pub fn plan(reference: &str) -> Result<Self, PlanError> {
        let named = format!("plans/{reference}.toml");
        for path in [reference, &named] {
            if Path::new(path).is_file() {
                return Self::read(Path::new(path));
            }
        }
        Self::builtin(PLANS, reference).ok_or_else(|| {
            let names: Vec<&str> = runnable_plans().collect();
            let near = nearest_words(reference.trim_end_matches(".toml"), &names);
            let reason = "no file and no plan has this name: allowed is a path, or a name from \
                          `forebay list plans`";
            PlanError::of(reference, format!("{reason}{near}"))
        })
    }

    /// The plan that this one names as `reference`, relative to it.
    pub fn sibling_plan(&self, reference: &str) -> Result<Self, PlanError> {
        match &self.folder {
            Some(folder) => Self::read(&folder.join(reference)),
            None => {
                let name = sibling_name(&self.file, reference);
                Self::builtin(PLANS, &name)
                    .ok_or_else(|| PlanError::of(reference, "not among the built-in plans"))
            }
        }
    }

    /// The size CDF that this plan names: built in, else a path relative to the plan.
    pub fn sizes(&self, reference: &str) -> Result<Self, PlanError> {
        self.data("size CDF", &SizeCdf::BUILTIN, reference)
    }

    /// The link trace that this plan names: built in or drawn, else a path relative to the plan.
    pub fn trace(&self, reference: &str) -> Result<Self, PlanError> {
        match Self::drawn_trace(reference) {
            Some(drawn) => drawn,
            None => self.data(TRACE, &Trace::BUILTIN, reference),
        }
    }

    /// The trace that a model such as `lte(seed=3)` draws, as text; `None` if `reference` names no model.
    pub fn drawn_trace(reference: &str) -> Option<Result<Self, PlanError>> {
        let spec: Spec = match reference.parse() {
            Ok(spec) => spec,
            Err(error) => {
                let name = reference.split('(').next().unwrap_or_default().trim();
                let is_model = PathModel::ALL.iter().any(|model| model.name() == name);
                return is_model.then(|| Err(PlanError::of(reference, error)));
            }
        };
        let drawn = DrawnPath::from_spec(&spec)?;
        let text = drawn.and_then(|path| path.trace()).map(|trace| trace.to_string());
        let source = |text| Self { file: reference.to_string(), folder: None, text };
        Some(text.map(source).map_err(|error| PlanError::of(reference, error)))
    }

    /// The file called `reference`. A built-in plan has no folder, so it can only name files in `known`.
    fn data(&self, what: &str, known: &[(&str, &str)], reference: &str) -> Result<Self, PlanError> {
        if let Some(source) = Self::builtin(known, reference) {
            return Ok(source);
        }
        let Some(folder) = &self.folder else {
            let mut names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            if what == TRACE {
                names.extend(PathModel::ALL.map(PathModel::name));
            }
            let reason =
                format!("no {what} of that name: allowed is {}", one_of(reference, &names));
            return Err(PlanError::of(reference, reason));
        };
        Self::read(&folder.join(reference))
    }

    fn builtin(list: &[(&str, &str)], name: &str) -> Option<Self> {
        let (_, text) = list.iter().find(|(known, _)| *known == name)?;
        Some(Self { file: name.to_string(), folder: None, text: text.to_string() })
    }

    /// Reads a file of at most 16 MiB.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let file = path.display().to_string();
        let mut text = String::new();
        let limit = MAX_FILE_BYTES + 1;
        std::fs::File::open(path)
            .and_then(|opened| opened.take(limit).read_to_string(&mut text))
            .map_err(|error| PlanError::of(&file, error))?;
        if text.len() as u64 == limit {
            let reason = format!("larger than the limit of {MAX_FILE_BYTES} bytes");
            return Err(PlanError::of(&file, reason));
        }
        let folder = Some(path.parent().unwrap_or(Path::new("")).to_path_buf());
        Ok(Self { file, folder, text })
    }
}

/// The built-in plans that run as they are: those with a bottleneck or trials of costs, their own or from a plan
/// that they extend.
pub fn runnable_plans() -> impl Iterator<Item = &'static str> {
    PLANS.iter().filter(|(name, text)| is_runnable(name, text)).map(|(name, _)| *name)
}

fn is_runnable(name: &str, text: &str) -> bool {
    let Ok(plan) = text.parse::<toml::Table>() else { return false };
    let base = plan.get("extends").and_then(toml::Value::as_str).map(|it| sibling_name(name, it));
    let base = PLANS.iter().find(|(name, _)| base.as_deref() == Some(*name));
    let is_whole = ["bottleneck", "cost"].iter().any(|key| plan.contains_key(*key));
    is_whole || base.is_some_and(|(name, text)| is_runnable(name, text))
}

/// Title of the built-in plan `name`: its own, or that of a plan that it extends. Reading it is fast, unlike a
/// [`Plan`](super::Plan).
pub fn title(name: &str) -> Option<String> {
    let (_, text) = PLANS.iter().find(|(known, _)| *known == name)?;
    let plan: toml::Table = text.parse().ok()?;
    let text = |key: &str| plan.get(key).and_then(toml::Value::as_str);
    match text("title") {
        Some(title) => Some(title.trim().into()),
        None => title(&sibling_name(name, text("extends")?)),
    }
}

/// The built-in plans for an algorithm under test, in the order of a benchmark.
pub fn benchmark() -> impl Iterator<Item = &'static str> {
    in_folder("ccperf")
}

/// The built-in plans in a folder that have traffic of their own, in the order of [`PLANS`].
pub fn in_folder(folder: &str) -> impl Iterator<Item = &'static str> {
    runnable_plans().filter(move |name| name.split_once('/').is_some_and(|(of, _)| of == folder))
}

/// Resolves `reference` relative to the built-in plan `file`: `../arms.toml` from `bundler/dynamics/idle` is
/// `bundler/arms`.
fn sibling_name(file: &str, reference: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in reference.trim_end_matches(".toml").split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_under(folder: &Path, extension: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|found| found == extension) {
                    let name = path.strip_prefix(folder).unwrap().with_extension("");
                    found.push(name.to_str().unwrap().to_string());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn every_plan_of_the_repository_is_built_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut names: Vec<&str> = PLANS.iter().map(|(name, _)| *name).collect();
        names.sort();
        let files = files_under(&root.join("plans"), "toml");
        assert_eq!(files, names);
    }

    #[test]
    fn names_resolve_relative_to_their_plan() {
        assert_eq!(sibling_name("bundler/main", "arms.toml"), "bundler/arms");
        assert_eq!(sibling_name("bundler/dynamics/idle", "../arms.toml"), "bundler/arms");
    }

    #[test]
    fn misspelt_plan_gets_at_most_five_names() {
        let error = |name: &str| Source::plan(name).unwrap_err().to_string();
        let expected = "bundler/mian: no file and no plan has this name: allowed is a path, or a name \
                        from `forebay list plans`; nearest is bundler/main";
        assert_eq!(error("bundler/mian"), expected);
        assert!(error("steady_state").matches(", ").count() < 6, "{}", error("steady_state"));
        assert!(error("nonesuch").ends_with("`forebay list plans`"), "{}", error("nonesuch"));
    }
}
