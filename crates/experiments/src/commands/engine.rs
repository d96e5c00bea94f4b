//! Simulations outside of this program: a cluster makes these for the Python package, which puts the results into
//! the store of a folder.

use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use forebay_lab::plan::Seeds;

use forebay::BadInput;

/// The program that makes simulations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// This program.
    Threads,
    /// The Ray cluster at this address, in the syntax of the Python package.
    Ray(String),
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "threads" => Ok(Self::Threads),
            _ if text == "ray" || text.starts_with("ray://") => Ok(Self::Ray(text.into())),
            _ => Err("allowed is threads, ray or ray://HOST:PORT".into()),
        }
    }
}

/// The runs of a plan, as the arguments of `forebay run` name them.
pub struct Work<'a> {
    /// Path or name of the plan.
    pub plan: &'a str,
    /// Only these arms; all if it is empty.
    pub arms: &'a [String],
    /// Values to replace.
    pub sets: &'a [String],
    /// Use the settings of the experiment's authors.
    pub as_published: bool,
    /// Seeds instead of the plan's.
    pub seeds: Option<Seeds>,
    /// Runs at a time.
    pub jobs: Option<u16>,
    /// Folder of the rows, and of the store.
    pub out: &'a Path,
}

impl Work<'_> {
    /// Has the cluster at `address` make the runs that the folder lacks, with a simulator built from `sources`. The
    /// Python package reports progress and errors on stderr.
    pub fn give_to(&self, address: &str, sources: &str) -> anyhow::Result<()> {
        let package = "python3 with the package forebay[ray]";
        let started = self.command(address, sources).status();
        let status = started.map_err(|error| {
            anyhow::anyhow!("--engine {address}: python3: {error}: allowed is {package} in PATH")
        })?;
        match status.code() {
            Some(0) => Ok(()),
            Some(2) => Err(BadInput(format!("--engine {address}: refused, see above")).into()),
            _ => {
                anyhow::bail!("--engine {address}: {status}, see above; the engine needs {package}")
            }
        }
    }

    fn command(&self, address: &str, sources: &str) -> Command {
        let mut command = Command::new("python3");
        command.args(["-m", "forebay.sweeps", self.plan, "--on", address, "--sources", sources]);
        command.arg("--out").arg(self.out).arg("--store").arg(self.out).arg("--over-time");
        if let Some(seeds) = self.seeds {
            command.arg("--seeds").arg(seeds.to_string());
        }
        if let Some(jobs) = self.jobs {
            command.arg("--jobs").arg(jobs.to_string());
        }
        if !self.arms.is_empty() {
            command.arg("--arms").arg(self.arms.join(","));
        }
        command.args(self.sets.iter().flat_map(|set| ["--set", set.as_str()]));
        if self.as_published {
            command.arg("--as-published");
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_engine_is_refused_with_known_names() {
        assert_eq!("threads".parse::<Engine>(), Ok(Engine::Threads));
        for address in ["ray", "ray://head:10001"] {
            assert_eq!(address.parse::<Engine>(), Ok(Engine::Ray(address.into())));
        }
        let error = "rays".parse::<Engine>().unwrap_err();
        assert!(error.contains("ray://HOST:PORT"), "{error}");
    }

    #[test]
    fn python_package_gets_all_arguments_of_run() {
        let sets = ["stop=2s".to_string(), "flow.web.count=3".to_string()];
        let work = Work {
            plan: "bundler/main",
            arms: &["a".into(), "b".into()],
            sets: &sets,
            as_published: true,
            seeds: Some("1..9".parse().unwrap()),
            jobs: Some(4),
            out: Path::new("out/main"),
        };
        let told = work.command("ray", "abc");
        let told: Vec<&str> = told.get_args().map(|it| it.to_str().unwrap()).collect();
        let expected = "-m forebay.sweeps bundler/main --on ray --sources abc --out out/main \
                        --store out/main --over-time --seeds 1..9 --jobs 4 --arms a,b \
                        --set stop=2s --set flow.web.count=3 --as-published";
        assert_eq!(told.join(" "), expected);
    }
}
