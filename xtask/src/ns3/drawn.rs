//! `ns3-runs`: repeats runs of a file, or makes runs that a seed draws. Drawn runs are compared immediately, before
//! anyone has looked at them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use forebay_lab::backend::ns3::Driver;
use forebay_lab::compare::ns3::{Simulated, Totals, Truths};
use serde_json::{Value, json};

use super::runs::{self, CHOSEN};
use super::space::draw;
use crate::Misuse;

/// Classes of runs, and for each class the share of pairs that must hold.
const CLASSES: [(&str, f64); 4] =
    [("tight", 0.95), ("loose", 0.95), ("loss", 0.95), ("unstable", 0.0)];

/// Options of the command line.
#[derive(Debug, Default, PartialEq)]
struct Options {
    install: bool,
    seed: Option<u64>,
    count: usize,
    jobs: usize,
    file: Option<PathBuf>,
    /// Folders of the `ns3-core.pc` of other versions of ns-3.
    also: Vec<PathBuf>,
    /// Parts of the names of the runs to make again; empty: all.
    names: Vec<String>,
}

/// Makes the runs that the command line names, as the help describes. Fails without ns-3. For runs that a seed draws,
/// also fails where fewer than 95 % of the pairs of a class hold.
pub fn make(arguments: &[String]) -> Result<()> {
    let options = parse(arguments).map_err(Misuse::of)?;
    if options.install {
        super::install()?;
    }
    let root = crate::repository();
    let mut drivers = vec![Driver::find(None)?];
    for folder in &options.also {
        drivers.push(Driver::find(Some(folder))?);
    }
    let versions = drivers.iter().map(|driver| format!("ns-{}", driver.version()));
    let versions = versions.collect::<Vec<_>>().join(" and ");
    let Some(seed) = options.seed else {
        let path = options.file.unwrap_or_else(|| root.join(CHOSEN));
        let mut file = runs::read(&path)?;
        let is_wanted = |run: &Value| {
            let name = run["name"].as_str().unwrap_or_default();
            options.names.is_empty() || options.names.iter().any(|part| name.contains(part))
        };
        let wanted = places(&file, is_wanted);
        return runs::make(&path, &mut file, &wanted, &drivers, options.jobs);
    };
    let path = options.file.unwrap_or_else(|| root.join(format!("traces/ns3/drawn_{seed}.json")));
    let mut file = drawn(&path, seed, options.count, &versions)?;
    let wanted = places(&file, |run| run["stability"].is_null());
    runs::make(&path, &mut file, &wanted, &drivers, options.jobs)?;
    let now = look(&root, &path)?;
    if file["first_look"].is_null() {
        file["first_look"] = now.clone();
        runs::write(&path, &file)?;
    }
    println!("{}", table(&file["first_look"], &now));
    let missed: Vec<&str> = missed(&now).collect();
    ensure!(missed.is_empty(), "fewer pairs hold than the bounds demand: {}", missed.join(", "));
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options { count: 80, jobs: processors, ..Options::default() };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().with_context(|| format!("{argument}: expected a value"));
        let number = |text: &String, most: usize| {
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.with_context(|| format!("{argument} {text}: allowed is 1 to {most}"))
        };
        match argument.as_str() {
            "--install" => options.install = true,
            "--seed" => {
                let text = value()?;
                let seed = text.parse();
                let seed =
                    seed.with_context(|| format!("--seed {text}: allowed is a whole number"));
                options.seed = Some(seed?);
            }
            "--count" => options.count = number(value()?, 1000)?,
            "--jobs" => options.jobs = number(value()?, 1024)?,
            "--file" => options.file = Some(value()?.into()),
            // The files have room for two versions.
            "--also" if options.also.is_empty() => options.also.push(value()?.into()),
            flag if flag.starts_with('-') => bail!(
                "{flag}: allowed is --install, --seed S, --count N, --jobs N, --file FILE, --also DIR \
                 once, or a NAME"
            ),
            name => options.names.push(name.into()),
        }
    }
    if let (Some(_), Some(name)) = (options.seed, options.names.first()) {
        bail!("{name}: --seed allows no NAME");
    }
    Ok(options)
}

/// The places of the runs of `file` that are wanted.
fn places(file: &Value, is_wanted: impl Fn(&Value) -> bool) -> Vec<usize> {
    let runs = file["runs"].as_array().into_iter().flatten().enumerate();
    runs.filter(|(_, run)| is_wanted(run)).map(|(place, _)| place).collect()
}

/// The runs that `seed` draws, with results in the file at `path` reused, to be made by these `versions` of ns-3.
fn drawn(path: &Path, seed: u64, count: usize, versions: &str) -> Result<Value> {
    let about = format!(
        "Dumbbell runs of {versions} that seed {seed} draws from the space of xtask/src/ns3/space.rs: params, least \
         and greatest value of each metric over five starts of each within a round trip (0, 0.1, 0.25, 0.5 and \
         0.75 of it), class of stability by the throughput of these; ten runs of each with random losses. first_look: how many \
         pairs held, of all, when the simulator was first compared."
    );
    let mut runs = draw(seed, count, versions);
    if !path.exists() {
        return Ok(json!({ "about": about, "runs": runs }));
    }
    let there = runs::read(path)?;
    let name = path.display();
    ensure!(there["about"] == about, "{name}: made with another seed or ns-3; name another --file");
    for run in &mut runs {
        let of_there = there["runs"].as_array().into_iter().flatten();
        let is_it = |known: &&Value| ["name", "params"].iter().all(|key| known[*key] == run[*key]);
        if let Some(known) = of_there.clone().find(is_it) {
            *run = known.clone();
        }
    }
    let known = there["runs"].as_array().map_or(0, Vec::len);
    let has_look = !there["first_look"].is_null();
    // A look at these and further runs would be no first look, and existing runs are not thrown away.
    let is_allowed = if has_look { count == known } else { count >= known };
    let allowed =
        if has_look { "already compared once: allowed is" } else { "allowed is at least" };
    ensure!(
        is_allowed,
        "--count {count}: {name} has {known} runs, {allowed} {known}, or another --file"
    );
    let mut file = json!({ "about": about, "runs": runs });
    if !there["first_look"].is_null() {
        file["first_look"] = there["first_look"].clone();
    }
    Ok(file)
}

/// The pairs of the file that hold in the current simulator.
fn look(root: &Path, path: &Path) -> Result<Value> {
    let truths = Truths::read(path).map_err(anyhow::Error::msg)?;
    let mut totals = Totals::default();
    for truth in &truths.runs {
        totals.count(truth.class, Simulated::new(truth).ok().as_ref());
    }
    let mut found = totals.json(truths.runs.len());
    let git = ["describe", "--always", "--dirty", "--exclude=*"];
    let output = Command::new("git").current_dir(root).args(git).output().context("git")?;
    found["commit"] = String::from_utf8_lossy(&output.stdout).trim().into();
    Ok(found)
}

fn pairs(look: &Value, class: &str) -> (u64, u64) {
    let of = |place: usize| look[class][place].as_u64().unwrap_or(0);
    (of(0), of(1))
}

/// The classes with too few holding pairs.
fn missed(look: &Value) -> impl Iterator<Item = &'static str> {
    let is_missed = move |(class, share): &(&'static str, f64)| {
        let (holding, all) = pairs(look, class);
        (holding as f64) < share * all as f64
    };
    CLASSES.into_iter().filter(is_missed).map(|(class, _)| class)
}

fn table(first: &Value, now: &Value) -> String {
    let cell = |look: &Value, class: &str| {
        let (holding, all) = pairs(look, class);
        let percent = if all == 0 { 100.0 } else { holding as f64 / all as f64 * 100.0 };
        format!("{holding} of {all} ({percent:.1} %)")
    };
    let commit = |look: &Value| look["commit"].as_str().unwrap_or("?").to_string();
    let [first_commit, commit] = [first, now].map(commit);
    let mut table = format!(
        "| pairs that hold | first look ({first_commit}) | now ({commit}) |\n|---|---|---|"
    );
    for (class, _) in CLASSES {
        table += &format!("\n| {class} | {} | {} |", cell(first, class), cell(now, class));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options> {
        parse(&text.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn draws_runs_by_seed_or_takes_names() {
        let options = parsed("--seed 7 --count 3 --jobs 2 --file x.json").unwrap();
        let file = Some("x.json".into());
        let expected = Options { seed: Some(7), count: 3, jobs: 2, file, ..Options::default() };
        assert_eq!(options, expected);
        assert_eq!(parsed("--seed 7").unwrap().count, 80);
        let options = parsed("--install aqm var").unwrap();
        assert!(options.install && options.seed.is_none() && options.names == ["aqm", "var"]);
        for (text, expected) in [
            ("--seed", "--seed: expected a value"),
            ("--seed x", "--seed x: allowed is a whole number"),
            ("--seed 7 --count 0", "--count 0: allowed is 1 to 1000"),
            ("--seed 7 aqm", "aqm: --seed allows no NAME"),
            ("--fast", "--fast: allowed is --install, --seed S"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_first_look_stands_beside_what_holds_now() {
        let first = json!({ "commit": "a", "tight": [90, 100], "loose": [5, 5], "loss": [0, 0] });
        let now = json!({ "commit": "b", "tight": [96, 100], "loose": [4, 5], "unstable": [1, 9] });
        let expected = "| pairs that hold | first look (a) | now (b) |\n|---|---|---|\n\
                        | tight | 90 of 100 (90.0 %) | 96 of 100 (96.0 %) |\n\
                        | loose | 5 of 5 (100.0 %) | 4 of 5 (80.0 %) |\n\
                        | loss | 0 of 0 (100.0 %) | 0 of 0 (100.0 %) |\n\
                        | unstable | 0 of 0 (100.0 %) | 1 of 9 (11.1 %) |";
        assert_eq!(table(&first, &now), expected);
        assert_eq!(missed(&now).collect::<Vec<_>>(), ["loose"]);
        assert_eq!(missed(&first).collect::<Vec<_>>(), ["tight"]);
    }

    #[test]
    fn keeps_made_runs_and_refuses_foreign_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drawn.json");
        let mut file = drawn(&path, 7, 3, "ns-3.37").unwrap();
        assert_eq!(places(&file, |run| run["stability"].is_null()), [0, 1, 2]);
        file["runs"][1]["stability"] = json!({ "class": "tight" });
        runs::write(&path, &file).unwrap();
        let again = drawn(&path, 7, 5, "ns-3.37").unwrap();
        assert_eq!(places(&again, |run| run["stability"].is_null()), [0, 2, 3, 4]);
        let refused = |count| drawn(&path, 7, count, "ns-3.37").unwrap_err().to_string();
        let fewer = refused(2);
        assert!(fewer.starts_with("--count 2: ") && fewer.contains("allowed is at least 3, or"));
        file["first_look"] = json!({ "runs": 3 });
        runs::write(&path, &file).unwrap();
        let again = drawn(&path, 7, 3, "ns-3.37").unwrap();
        assert_eq!(again["first_look"]["runs"], 3);
        let more = refused(5);
        assert!(more.contains("3 runs, already compared once: allowed is 3, or"), "{more}");
        let error = drawn(&path, 8, 3, "ns-3.37").unwrap_err().to_string();
        assert!(error.contains("made with another seed or ns-3"), "{error}");
    }
}
