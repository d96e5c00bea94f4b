//! Paths that a plan can name instead of describing one: `[bottleneck] path = "winds_satellite"`.

use std::sync::LazyLock;

use forebay_core::spec::one_of;

use super::error::PlanError;
use super::tree::{Node, Table, Value, parse_document};

/// A path that somebody measured, or calls typical.
#[derive(Debug)]
pub struct Path {
    /// What plans call it.
    pub name: String,
    /// The path in plain words.
    pub summary: String,
    /// Where its numbers are from.
    pub source: String,
    /// Keys of `[bottleneck]`.
    bottleneck: Table,
}

impl Path {
    /// A table of `paths.toml`; `None` where that lacks a text.
    fn new(name: String, table: Node) -> Option<Self> {
        let Value::Table(mut bottleneck) = table.value else { return None };
        let mut text = |key: &str| match bottleneck.remove(key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        };
        let (summary, source) = (text("summary")?, text("source")?);
        Some(Self { name, summary, source, bottleneck })
    }

    /// The keys of `[bottleneck]` that it stands for, with their values as written.
    pub fn values(&self) -> impl Iterator<Item = (&str, String)> {
        self.bottleneck.iter().map(|(key, node)| (key.as_str(), node.value.plain()))
    }
}

/// Every path that a plan can name, in the order of the names.
pub static PATHS: LazyLock<Vec<Path>> = LazyLock::new(|| {
    let tables = parse_document(include_str!("paths.toml"), "paths.toml");
    let paths = tables.expect("a test reads the paths").into_iter();
    paths.filter_map(|(name, table)| Path::new(name, table)).collect()
});

/// What a plan has either of, so that its own one is instead of that of the path.
const SERVICE: [&str; 2] = ["rate", "trace"];

/// Where the bottleneck names a path, gives it the keys of that path which it lacks.
///
/// # Errors
///
/// There is no such path; the error names those that there are.
pub fn follow(tree: &mut Table) -> Result<(), PlanError> {
    let Some(Node { value: Value::Table(bottleneck), .. }) = tree.get_mut("bottleneck") else {
        return Ok(());
    };
    let Some(Node { value: name, origin }) = bottleneck.get("path").cloned() else {
        return Ok(());
    };
    let Some(path) = PATHS.iter().find(|path| Value::Text(path.name.clone()) == name) else {
        let names: Vec<&str> = PATHS.iter().map(|path| path.name.as_str()).collect();
        let allowed = one_of(&name.plain(), &names);
        return Err(PlanError::value(origin, "bottleneck.path", &name.to_string(), &allowed));
    };
    let is_served = SERVICE.iter().any(|key| bottleneck.contains_key(*key));
    for (key, node) in &path.bottleneck {
        if !(is_served && SERVICE.contains(&key.as_str())) {
            let node = Node { value: node.value.clone(), origin: origin.clone() };
            bottleneck.entry(key.clone()).or_insert(node);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Experiment;
    use super::super::tests::load;
    use super::*;

    const PLAN: &str = "name = \"p\"\nstop = \"10s\"\n[bottleneck]\npath = \"india_to_aws_india\"\n\
                        [[flow]]\ntraffic = { kind = \"greedy\" }\n";

    fn run(sets: &[&str]) -> Result<Experiment, PlanError> {
        let plan = load(PLAN, sets)?;
        plan.experiment(&plan.arms[0], &plan.cells[0], 1)
    }

    #[test]
    fn every_path_can_be_followed() {
        for path in &*PATHS {
            let run = run(&[&format!("bottleneck.path={}", path.name)]).unwrap();
            assert!(run.forward.nominal_rate.is_some() && !path.source.is_empty(), "{}", path.name);
        }
        assert_eq!(PATHS.len(), include_str!("paths.toml").matches("\n[").count());
    }

    #[test]
    fn a_path_gives_what_the_plan_lacks() {
        let whole = run(&[]).unwrap();
        assert_eq!(whole.forward.rate.unwrap().to_string(), "100420kbit/s");
        assert_eq!(whole.rtt, Duration::from_millis(54));
        assert_eq!(whole.forward.qdisc.to_string(), "fifo(limit=173p)");
        let satellite = run(&["bottleneck.path=winds_satellite", "bottleneck.loss=0"]).unwrap();
        assert_eq!((satellite.forward.loss, satellite.rtt.as_millis()), (0.0, 800));
        let cellular = run(&["bottleneck.path=mexico_cellular_to_aws_california"]).unwrap();
        assert!(cellular.forward.rate.is_none() && cellular.forward.trace.is_some());
        let sets = ["bottleneck.path=mexico_cellular_to_aws_california", "bottleneck.rate=5Mbit/s"];
        let own = run(&sets).unwrap();
        assert!(own.forward.rate.is_some() && own.forward.trace.is_none());
        assert_ne!(whole.sha256, run(&["bottleneck.rtt=55ms"]).unwrap().sha256);
    }

    #[test]
    fn a_path_that_there_is_not_is_told_the_nearest_one() {
        let wrong = PLAN.replace("india\"", "indai\"");
        let error = load(&wrong, &[]).unwrap_err().to_string();
        let start =
            "p.toml:4: bottleneck.path = \"india_to_aws_indai\": allowed is one of aws_brazil_";
        assert!(error.starts_with(start), "{error}");
        assert!(error.ends_with("; nearest is india_to_aws_india"), "{error}");
        let error = load(PLAN, &["bottleneck.path=3"]).unwrap_err().to_string();
        assert!(error.starts_with("--set: bottleneck.path = 3: allowed is one of"), "{error}");
    }
}
