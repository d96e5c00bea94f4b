//! `--cc-python`: algorithms of a file in Python, which other arguments may name then.

use std::path::PathBuf;

use forebay_core::text::shell_word;

/// The files.
#[derive(clap::Args)]
pub struct Python {
    /// Python file that defines algorithms. You can then name them like all other algorithms. A
    /// child process without privileges runs the file. May be repeated.
    #[arg(long = "cc-python", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Python {
    /// Whether there are any.
    pub fn is_given(&self) -> bool {
        !self.files.is_empty()
    }

    /// The arguments as part of a shell command.
    pub fn arguments(&self) -> String {
        let argument =
            |file: &PathBuf| format!(" --cc-python {}", shell_word(&file.to_string_lossy()));
        self.files.iter().map(argument).collect()
    }
}

#[cfg(feature = "host")]
mod with_host {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::path::Path;
    use std::process::ExitCode;

    use forebay_core::cc::Algorithm;
    use forebay_core::cc::algorithms::newreno;
    use forebay_core::spec::SpecError;
    use forebay_host::foreign_python::{Entry, Live, Raised};
    use forebay_policy::algorithms::{self, Own};

    use super::Python;
    use crate::commands::BadInput;

    impl Python {
        /// Makes algorithms known that decide for connections of this machine's kernel. NewReno decides while
        /// an answer is late.
        pub fn know(&self) -> anyhow::Result<()> {
            self.know_as(|live, entry| live.algorithm(entry, newreno::ALGORITHM))
        }

        /// Makes the algorithms known to plans. In simulations time stops until the answer comes.
        pub fn know_in_plans(&self) -> anyhow::Result<()> {
            self.know_as(Live::in_step)
        }

        fn know_as(
            &self,
            make: impl Fn(&Live, &Entry) -> Result<Algorithm, SpecError>,
        ) -> anyhow::Result<()> {
            self.files.iter().try_for_each(|file| Ok(know(file, &make)?))
        }
    }

    /// Calls `run`; an exception in Python that ends a simulation becomes an error.
    pub fn told_as_error(
        run: impl FnOnce() -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        // The program ends: nothing that was being changed is seen again.
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            match panic.downcast::<Raised>() {
                Ok(raised) => Err(anyhow::anyhow!(raised.0)),
                Err(panic) => resume_unwind(panic),
            }
        })
    }

    fn know(
        file: &Path,
        make: impl Fn(&Live, &Entry) -> Result<Algorithm, SpecError>,
    ) -> Result<(), BadInput> {
        let wrong = |reason: String| BadInput(format!("--cc-python {reason}"));
        let live = Live::start(file).map_err(|error| wrong(error.to_string()))?;
        // It is there: the child has run it.
        let path = file.canonicalize().map_err(|error| wrong(error.to_string()))?;
        let folder: &'static str = path.to_string_lossy().into_owned().leak();
        for entry in &live.entries {
            let sources: &'static str = entry.sources.clone().leak();
            let own = |algorithm| Own { algorithm, folder, sources };
            let added = make(&live, entry).and_then(|algorithm| algorithms::add(&[own(algorithm)]));
            let (file, name) = (file.display(), &entry.name);
            added.map_err(|error| wrong(format!("{file}: algorithm {name:?}: {error}")))?;
        }
        Ok(())
    }
}

#[cfg(feature = "host")]
pub use with_host::told_as_error;

/// Calls `run`: without a host there are no algorithms in Python.
#[cfg(not(feature = "host"))]
pub fn told_as_error(
    run: impl FnOnce() -> anyhow::Result<std::process::ExitCode>,
) -> anyhow::Result<std::process::ExitCode> {
    run()
}

#[cfg(not(feature = "host"))]
impl Python {
    /// Refuses files, which this build cannot run.
    pub fn know_in_plans(&self) -> anyhow::Result<()> {
        if self.files.is_empty() { Ok(()) } else { Err(super::needs_host("run --cc-python")) }
    }
}
