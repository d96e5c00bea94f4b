//! `python`: an algorithm in a Python file, named in the configuration of a sendbox.
//!
//! Children start together with the box and never later, since a running box may start no programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_core::bundle::sendbox::SUPPLIED;
use forebay_core::cc::algorithms::copa;
use forebay_core::cc::foreign::{Every, Values, seldom, within_bounds};
use forebay_core::cc::{Algorithm, CongestionControl, Registry};
use forebay_core::spec::{DescribedParam, Spec, SpecError, Value, one_of};

use super::remote::Remote;
use super::{Entry, Live, described};

/// Parameter: the file of the class.
const FILE: DescribedParam = DescribedParam {
    name: "file",
    summary: "the file in Python that has the class",
    default: None,
    allowed: "the path of a file in Python, from the folder in which the program runs",
};

/// Parameter: the algorithm in the file.
const CLASS: DescribedParam = DescribedParam {
    name: "algorithm",
    summary: "the algorithm in the file, with its parameters; optional if the file has only one",
    default: None,
    allowed: "the name of an algorithm, as a text: \"gentle\" or \"gentle(keep=0.7)\"",
};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "python",
    summary: "a class in Python, in a child without privileges; Copa takes over if the class is \
              late or fails",
    sources: &["this project: crates/host/src/live, python/forebay/live.py"],
    params: &[&FILE, &CLASS],
    // The fields that the class needs are known only after the file was run.
    needs: &[],
    min_window_mss: 1.0,
    batch_tolerance: 0.2,
    build: &build_unnamed,
};

/// The children of this process, by the paths in the configuration.
static STARTED: Mutex<BTreeMap<PathBuf, Live>> = Mutex::new(BTreeMap::new());

fn started() -> MutexGuard<'static, BTreeMap<PathBuf, Live>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The algorithms that can control a bundle.
pub fn registry() -> Registry {
    let mut registry = forebay_policy::registry();
    registry.register(ALGORITHM).expect("the name is unique");
    registry
}

/// The specification of the algorithm `name` in `file`; without a name, of the only one there.
pub fn of(file: &Path, name: Option<&str>) -> Spec {
    let file = file.to_string_lossy().into_owned();
    let spec = Spec::named(ALGORITHM.name).with(FILE.name, Value::Text(file));
    match name {
        Some(name) => spec.with(CLASS.name, Value::Text(name.into())),
        None => spec,
    }
}

/// The Python file of `spec`, if it has one.
pub fn file(spec: &Spec) -> Option<&str> {
    if spec.kind == ALGORITHM.name { file_of(spec).ok() } else { None }
}

/// Checks `spec` as far as possible before its file is run, which may define any algorithm.
///
/// # Errors
///
/// If a parameter is unknown or missing, or the file does not exist.
pub fn check(spec: &Spec) -> Result<(), SpecError> {
    if spec.kind != ALGORITHM.name {
        return Ok(());
    }
    spec.check_names(ALGORITHM.params)?;
    text(spec, &CLASS)?;
    let file = file_of(spec)?;
    let refused = |reason: &str| {
        let allowed = format!("a file in Python that can be read ({reason})");
        SpecError::new(FILE.name, file, &allowed)
    };
    let metadata = Path::new(file).metadata().map_err(|error| refused(&error.to_string()))?;
    if metadata.is_file() { Ok(()) } else { Err(refused("not a regular file")) }
}

/// Starts the child that `spec` needs, unless it runs already.
///
/// # Errors
///
/// If no child can decide, or the file lacks the algorithm, or the algorithm needs a field that a sendbox
/// does not measure.
pub fn start(spec: &Spec) -> Result<(), SpecError> {
    if spec.kind != ALGORITHM.name {
        return Ok(());
    }
    let file = file_of(spec)?;
    let mut started = started();
    if !started.contains_key(Path::new(file)) {
        let refused = |error: &dyn std::fmt::Display| {
            SpecError::new(FILE.name, file, &format!("a file that defines algorithms ({error})"))
        };
        let live = Live::start(Path::new(file)).map_err(|error| refused(&error))?;
        started.insert(file.into(), live);
    }
    let live = &started[Path::new(file)];
    let (entry, _) = choose(&live.entries, spec)?;
    let Entry { needs, every, .. } = entry;
    every_of(every)?;
    let supplied = SUPPLIED.iter().map(|field| field.name()).collect::<Vec<_>>();
    match needs.iter().find(|need| !supplied.contains(&need.as_str())) {
        None => Ok(()),
        Some(need) => Err(SpecError::new("needs", need, &one_of(need, &supplied))),
    }
}

/// Makes the algorithm of `spec` for a bundle that the log calls `whom`.
///
/// # Errors
///
/// As [`Registry::build`]. For a class in Python, also if its file was not there when this process started.
pub fn build(spec: &Spec, whom: &str) -> Result<Box<dyn CongestionControl>, SpecError> {
    if spec.kind == ALGORITHM.name { decide(spec, whom) } else { registry().build(spec, SUPPLIED) }
}

fn build_unnamed(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    decide(spec, &spec.kind)
}

fn decide(spec: &Spec, whom: &str) -> Result<Box<dyn CongestionControl>, SpecError> {
    let file = file_of(spec)?;
    let started = started();
    let live = started.get(Path::new(file)).ok_or_else(|| {
        let allowed = "a file that the box was started with, since a running box starts no \
                       programs: start it again";
        SpecError::new(FILE.name, file, allowed)
    })?;
    let (entry, params) = choose(&live.entries, spec)?;
    let Entry { name, every, .. } = entry;
    let remote = Remote::new(live.link.clone(), (name, &params), whom, &copa::ALGORITHM);
    let remote = seldom(Box::new(remote), every_of(every)?);
    Ok(within_bounds(remote, ALGORITHM.min_window_mss))
}

/// The entry that `spec` names, or the only one if it names none, and its parameters.
fn choose<'a>(entries: &'a [Entry], spec: &Spec) -> Result<(&'a Entry, Values), SpecError> {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let refused = |name: &str| SpecError::new(CLASS.name, name, &one_of(name, &names));
    let written = text(spec, &CLASS)?.map(str::parse::<Spec>).transpose();
    let written = written.map_err(|error| error.within(CLASS.name))?;
    let entry = match (&written, entries) {
        (None, [only]) => Ok(only),
        (None, _) => Err(refused("(absent)")),
        (Some(Spec { kind, .. }), _) => {
            entries.iter().find(|entry| entry.name == *kind).ok_or_else(|| refused(kind))
        }
    }?;
    let written = written.unwrap_or_else(|| Spec::named(&entry.name));
    let values = described(entry).values(&written);
    Ok((entry, values.map_err(|error| error.within(CLASS.name))?))
}

fn every_of(every: &str) -> Result<Every, SpecError> {
    every.parse().map_err(|allowed: String| SpecError::new("every", every, &allowed))
}

fn file_of(spec: &Spec) -> Result<&str, SpecError> {
    text(spec, &FILE)?.ok_or_else(|| SpecError::absent(FILE.name, &spec.kind))
}

/// A text parameter of `spec`, if it has it.
fn text<'a>(spec: &'a Spec, parameter: &DescribedParam) -> Result<Option<&'a str>, SpecError> {
    match spec.params.get(parameter.name) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(other) => Err(SpecError::new(parameter.name, &other.to_string(), parameter.allowed)),
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::cc::foreign::Setting;

    use super::*;

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.into(),
            summary: String::new(),
            needs: Vec::new(),
            every: "round".into(),
            limit_s: 10.0,
            params: vec![Setting {
                name: "keep".into(),
                summary: String::new(),
                default: Value::Float(0.5),
                low: Some(0.0),
                high: Some(1.0),
            }],
            sources: "0".into(),
        }
    }

    #[test]
    fn single_class_needs_no_name() {
        let file = Path::new("mine.py");
        let chosen = |names: &[&str], spec: &Spec| {
            let entries: Vec<Entry> = names.iter().map(|name| entry(name)).collect();
            choose(&entries, spec).map(|(it, _)| it.name.clone()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&["a"], &of(file, None)).as_deref(), Ok("a"));
        assert_eq!(chosen(&["a", "b"], &of(file, Some("b"))).as_deref(), Ok("b"));
        let error = chosen(&["a", "b"], &of(file, None)).unwrap_err();
        assert!(error.starts_with("algorithm = (absent): allowed is one of a, b"), "{error}");
        let error = chosen(&["a"], &of(file, Some("c"))).unwrap_err();
        assert!(error.starts_with("algorithm = c: allowed is one of a"), "{error}");
    }

    #[test]
    fn parameters_stand_behind_the_name() {
        let file = Path::new("mine.py");
        let chosen = |text: &str| {
            let found = choose(&[entry("a")], &of(file, Some(text))).map(|(_, params)| params);
            found.map_err(|error| error.to_string())
        };
        assert_eq!(chosen("a(keep=0.7)"), Ok(vec![("keep", Value::Float(0.7))]));
        assert_eq!(chosen("a"), Ok(vec![("keep", Value::Float(0.5))]));
        let error = chosen("a(keep=7)").unwrap_err();
        assert!(error.contains("algorithm.keep = 7: allowed is a number, 0 to 1"), "{error}");
        assert!(chosen("a(kept=0.7)").unwrap_err().starts_with("algorithm.kept"));
        assert!(chosen("a(").unwrap_err().starts_with("algorithm.kind"));
    }

    #[test]
    fn errors_before_the_run_name_key_and_value() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.py");
        let told = |spec: &Spec| check(spec).unwrap_err().to_string();
        let absent = "mine.py: allowed is a file in Python that can be read (";
        assert!(told(&of(&file, None)).contains(absent));
        assert!(told(&of(folder.path(), None)).ends_with("(not a regular file)"));
        std::fs::write(&file, "").unwrap();
        assert_eq!(check(&of(&file, Some("mine"))), Ok(()));
        let needed = "file = (absent): allowed is a value: python needs it";
        assert_eq!(told(&Spec::named("python")), needed);
        let wrong = of(&file, None).with("algorithm", Value::Integer(3));
        assert!(told(&wrong).starts_with("algorithm = 3: allowed is the name of"));
        assert!(told(&of(&file, None).with("flie", Value::Bool(true))).starts_with("flie = true"));
    }

    #[test]
    fn file_unknown_at_start_is_refused() {
        let late = of(Path::new("/nonexistent/late.py"), None);
        let error = build(&late, "b").err().unwrap();
        assert!(error.to_string().contains("a file that the box was started with"), "{error}");
        assert!(build(&Spec::named("copa"), "b").is_ok());
    }
}
