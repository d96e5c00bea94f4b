//! Paths that a plan can name instead of describing its own: `[bottleneck] path = "winds_satellite"`.

use std::sync::LazyLock;

use forebay_core::spec::one_of;

use forebay_reader::Problem;
use forebay_reader::tree::{Node, Table, Value, parse_document};

/// A path that was measured, or that its source calls typical.
#[derive(Debug)]
pub struct Path {
    /// Name in plans.
    pub name: String,
    /// The path in plain words.
    pub summary: String,
    /// Source of its numbers.
    pub source: String,
    /// Keys of `[bottleneck]`.
    bottleneck: Table,
}

impl Path {
    /// A table of `paths.toml`; `None` if it lacks a text.
    fn new(name: String, table: Node) -> Option<Self> {
        let Value::Table(mut bottleneck) = table.value else { return None };
        let mut text = |key: &str| match bottleneck.remove(key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        };
        let (summary, source) = (text("summary")?, text("source")?);
        Some(Self { name, summary, source, bottleneck })
    }

    /// The keys of `[bottleneck]` that the path sets, with their values as written.
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

/// Alternatives: if a plan has either key, the path sets neither.
const SERVICE: [&str; 2] = ["rate", "trace"];

/// If the bottleneck names a path, adds the path's keys that it lacks. For an unknown name, returns a problem
/// with the known names; another path's keys then fill in, so that no key is reported as missing.
pub fn follow(tree: &mut Table) -> Option<Problem> {
    let Some(Node { value: Value::Table(bottleneck), .. }) = tree.get_mut("bottleneck") else {
        return None;
    };
    let Node { value: name, origin } = bottleneck.get("path").cloned()?;
    let known = PATHS.iter().find(|path| Some(path.name.as_str()) == name.as_text());
    let path = known.or(PATHS.first())?;
    let is_served = SERVICE.iter().any(|key| bottleneck.contains_key(*key));
    for (key, node) in &path.bottleneck {
        if !(is_served && SERVICE.contains(&key.as_str())) {
            let node = Node { value: node.value.clone(), origin: origin.clone() };
            bottleneck.entry(key.clone()).or_insert(node);
        }
    }
    known.is_none().then(|| {
        let names: Vec<&str> = PATHS.iter().map(|path| path.name.as_str()).collect();
        Problem::value(&origin, "bottleneck.path", one_of(&name.plain(), &names))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_core::link::Service;

    use super::super::tests::load;
    use super::super::{Experiment, PlanError};
    use super::*;

    /// A plan with a measured path.
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
            assert!(
                run.forward.nominal_rate().is_some() && !path.source.is_empty(),
                "{}",
                path.name
            );
        }
        assert_eq!(PATHS.len(), include_str!("paths.toml").matches("\n[").count());
    }

    #[test]
    fn a_path_gives_what_the_plan_lacks() {
        let whole = run(&[]).unwrap();
        assert_eq!(whole.forward.rate().unwrap().to_string(), "100420kbit/s");
        assert_eq!(whole.rtt, Duration::from_millis(54));
        assert_eq!(whole.forward.qdisc.to_string(), "fifo(limit=173p)");
        let satellite = run(&["bottleneck.path=winds_satellite", "bottleneck.loss=0"]).unwrap();
        assert_eq!((satellite.forward.loss.as_f64(), satellite.rtt.as_millis()), (0.0, 800));
        let cellular = run(&["bottleneck.path=mexico_cellular_to_aws_california"]).unwrap();
        assert!(matches!(cellular.forward.service, Service::Trace(_)));
        let sets = ["bottleneck.path=mexico_cellular_to_aws_california", "bottleneck.rate=5Mbit/s"];
        let own = run(&sets).unwrap();
        assert!(matches!(own.forward.service, Service::Rate(_)));
        assert_ne!(whole.sha256, run(&["bottleneck.rtt=55ms"]).unwrap().sha256);
    }

    #[test]
    fn unknown_path_suggests_the_nearest() {
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
