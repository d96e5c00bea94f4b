//! The packets of a run for Wireshark, and its connections for viewers of qlog.
//!
//! The run is made for the capture alone and is not stored. It equals the stored run packet by packet.

mod conversation;
#[cfg(feature = "host")]
mod emulated;
mod frames;
mod headers;
mod pcapng;
mod points;
mod qlog;
mod simulated;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use forebay_core::units::ByteCount;
use forebay_scenario::Stack;

use self::frames::Frames;
pub use self::frames::Written;
use self::headers::LinkLayer;
use self::points::Points;
use self::qlog::Qlog;
use self::simulated::Simulated;
use crate::backend::{self, BackendError, RunProgress};
use crate::plan::Experiment;

/// Parts of a run to capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Back end, one of [`backend::NAMES`].
    pub backend: String,
    /// Points of capture: `sender`, `receiver`, for each link `NAME-in` and `NAME-out`, or `all`. In an
    /// emulated run the sender is site A.
    pub points: Vec<String>,
    /// Most bytes of each file; later packets and events are left out.
    pub limit: ByteCount,
    /// File for the packets, in the format of Wireshark.
    pub pcapng: Option<PathBuf>,
    /// File for the events of connections, in qlog 0.3; simulated runs only.
    pub qlog: Option<PathBuf>,
}

/// Sizes of the captures.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Size of the file [`Capture::pcapng`].
    pub pcapng: Option<Written>,
    /// Size of the file [`Capture::qlog`].
    pub qlog: Option<Written>,
}

/// Why the capture failed or is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The run has no such point.
    #[error("--at {name}: allowed is {allowed}")]
    Point {
        /// The name.
        name: String,
        /// The names of the run's points.
        allowed: String,
    },
    /// The kernel's connections are not observed.
    #[error("--qlog: the back end emu sees packets but no congestion windows; allowed with sim")]
    NoQlog,
    /// A file cannot be created.
    #[error("{}: {source}: allowed is a file that can be created and written", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The run cannot be made.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl CaptureError {
    /// Whether the request is at fault: exit code 2.
    pub const fn is_bad_input(&self) -> bool {
        match self {
            Self::Point { .. } | Self::NoQlog | Self::Create { .. } => true,
            Self::Write { .. } => false,
            Self::Backend(error) => {
                matches!(error, BackendError::Unavailable(_) | BackendError::Unsupported(_))
            }
        }
    }
}

/// Runs `experiment` and writes the requested captures.
pub fn capture(
    experiment: &Experiment,
    capture: &Capture,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<Captured, CaptureError> {
    let backend = backend::open(&capture.backend)?;
    if backend.name() == backend::ORACLE {
        let reason = format!(
            "--backend {}: allowed is one of {}",
            backend::ORACLE,
            backend::NAMES.join(", ")
        );
        return Err(BackendError::Unsupported(reason).into());
    }
    if experiment.topology.is_some() {
        let reason = "[topology]: a plan with many sites cannot be captured; allowed is a plan \
                      without it";
        return Err(BackendError::Unsupported(reason.into()).into());
    }
    if experiment.cost.is_some() {
        let reason = "[cost]: nothing is captured of trials, allowed is a plan with links";
        return Err(BackendError::Unsupported(reason.into()).into());
    }
    let is_simulated = backend.name() == "sim";
    if capture.qlog.is_some() && !is_simulated {
        return Err(CaptureError::NoQlog);
    }
    let links: Vec<String> = experiment.links().map(|link| link.name.clone()).collect();
    let points = Points::new(&links, &capture.points)?;
    backend.check(experiment)?;
    let limit = capture.limit.as_u64();
    let [pcapng, qlog] = [&capture.pcapng, &capture.qlog].map(|path| path.as_deref().map(create));
    let (pcapng, qlog) = (pcapng.transpose()?, qlog.transpose()?);
    let mut frames =
        pcapng.is_some().then(|| Frames::new(link_layer(experiment), links, points, limit));
    let mut log = qlog.is_some().then(|| Qlog::new(limit));
    if is_simulated {
        let mut seen = Simulated::new(experiment, frames, log);
        backend::observe(experiment, progress, |sight| seen.take(sight))?;
        (frames, log) = (seen.frames, seen.qlog);
    } else if let Some(frames) = &mut frames {
        emulate(experiment, frames, progress)?;
    }
    let title = format!("{}, {}", title(experiment), backend.name());
    let mut captured = Captured::default();
    if let Some((frames, file)) = frames.zip(pcapng) {
        let written = frames.write(BufWriter::new(file), &title);
        captured.pcapng = Some(written.map_err(cannot_write(&capture.pcapng))?);
    }
    if let Some((log, file)) = log.zip(qlog) {
        let written = log.write(BufWriter::new(file), &title);
        captured.qlog = Some(written.map_err(cannot_write(&capture.qlog))?);
    }
    Ok(captured)
}

/// Runs `experiment` on real kernels; the emulator's own files are deleted after the run.
#[cfg(feature = "host")]
fn emulate(
    experiment: &Experiment,
    frames: &mut Frames,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<(), CaptureError> {
    let failed = |source| CaptureError::Write { path: std::env::temp_dir(), source };
    let directory = tempfile::tempdir().map_err(failed)?;
    Ok(emulated::emulate(experiment, directory.path(), frames, progress)?)
}

/// In a build without real kernels [`backend::open`] has refused that back end.
#[cfg(not(feature = "host"))]
fn emulate(
    _experiment: &Experiment,
    _frames: &mut Frames,
    _progress: &mut dyn FnMut(RunProgress),
) -> Result<(), CaptureError> {
    Ok(())
}

fn create(path: &Path) -> Result<File, CaptureError> {
    File::create(path).map_err(|source| CaptureError::Create { path: path.into(), source })
}

fn cannot_write(path: &Option<PathBuf>) -> impl FnOnce(io::Error) -> CaptureError {
    let path = path.clone().unwrap_or_default();
    move |source| CaptureError::Write { path, source }
}

fn link_layer(experiment: &Experiment) -> LinkLayer {
    match experiment.stack {
        Stack::Linux => LinkLayer::Ethernet,
        Stack::Ns3 => LinkLayer::Ppp,
    }
}

/// Title of a capture: the run.
fn title(experiment: &Experiment) -> String {
    let Experiment { plan, arm, cell, scenario, .. } = experiment;
    let gap = if cell.is_empty() { "" } else { " " };
    format!("{plan}, {arm}{gap}{cell}, seed {}", scenario.seed)
}

#[cfg(test)]
mod tests;
