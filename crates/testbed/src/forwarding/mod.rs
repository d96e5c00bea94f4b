//! Cost of carrying packets: a sendbox compared with a bare forwarder and a plain bridge.
//!
//! ```text
//!  hosts              box                                         far side
//!  eth0 ───────────── lan   bridge | forwarder | sendbox   wan ── eth0, receivebox
//!  frames, echoes                                                 counted, echoed
//! ```
//! The forwarder copies each frame from one AF_XDP socket into another and does nothing else. Its cost is the
//! least that a datapath in user space has on this machine. The three arms take turns, block by block, so
//! that other activity of the machine affects all of them. Returning frames cross the bridge in every arm.

pub mod forwarder;
mod scene;
mod source;

use std::path::Path;
use std::time::Duration;

use forebay_core::units::Rate;
use forebay_host::service::privileges::go_realtime;
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::TestbedError;
use crate::lock;
use crate::process;
use crate::program::Program;
use scene::Scene;
use source::{Delivered, Source};

/// Carries the packets from `lan` to `wan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardingArm {
    /// The kernel's bridge.
    Bridge,
    /// The bare forwarder.
    Forwarder,
    /// A sendbox, with SFQ and sampling.
    Sendbox,
}

/// Options of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Turns of each arm, 1 or more.
    pub rounds: u32,
    /// Length of each block of traffic.
    pub duration: Duration,
    /// Echoes in a block.
    pub echoes: u32,
    /// The sendbox has a thread for its receive queue, and the carrying process has all processors but the
    /// source's.
    pub threads: bool,
}

/// A block of full load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ForwardingLoad {
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Arrived frames a second.
    pub packets_per_s: f64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// CPU time of the carrying process per arrived frame (ns). It includes packet work (softirq) in its
    /// context, and so the delivery at the far side.
    pub cpu_ns: f64,
}

/// One turn of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct ForwardingTurn {
    /// Counted from 0.
    pub round: u32,
    /// Arm of this turn.
    pub arm: ForwardingArm,
    /// Results for full frames and small ones, with as many frames on the way as fit without loss. Empty for
    /// a bridge, which has no process.
    pub loads: Vec<ForwardingLoad>,
    /// Frames of the bundle that the kernel carried past the sendbox. They are not measured, so it
    /// must be 0. `None` for other arms.
    pub passed: Option<u64>,
    /// Processors in use by the process at 96 Mbit/s of full frames, when the sendbox shapes and has a queue.
    pub cores_at_96_mbit: Option<f64>,
    /// From sending a frame to its echo, without other traffic (ns), ascending.
    pub echoes_ns: Vec<u64>,
    /// Load average of the machine over one minute at the end.
    pub load_average: f64,
}

/// Full frames, and the size of an acknowledgement.
const FRAME_BYTES: [usize; 2] = [1514, 66];
/// More than [`SHAPED`], so that a queue builds up.
const OFFERED: Rate = Rate::from_mbit_per_sec(100);
/// Rate that the sendbox enforces, and rate of the load for arms without a queue.
const SHAPED: Rate = Rate::from_mbit_per_sec(96);

/// Runs all arms in turn; calls `told` after each turn. Namespaces and programs end with the calling thread,
/// which from now on keeps to one processor under SCHED_FIFO. The programs write their files to `dir`.
///
/// # Errors
///
/// No root, no tool `ip`, a program that does not start.
pub fn measure(
    binary: &Path,
    dir: &Path,
    options: Options,
    told: &mut dyn FnMut(&ForwardingTurn),
) -> Result<Vec<ForwardingTurn>, TestbedError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(TestbedError::NotRoot);
    }
    let _lock = lock::take(&mut |_| {})?;
    let processors = process::processors().map_err(TestbedError::Proc)?;
    // Other work of the machine must not delay packets.
    go_realtime();
    // The source has the first processor, the carrying process the last one or all except the first.
    let last = processors.len() - 1;
    let carriers = if options.threads { 1.min(last) } else { last };
    let scene = Scene::build(binary, dir, processors[0], &processors[carriers..], options.threads)?;
    let mut turns = Vec::new();
    for round in 0..options.rounds {
        let mut arms = [ForwardingArm::Bridge, ForwardingArm::Forwarder, ForwardingArm::Sendbox];
        if round % 2 == 1 {
            arms.reverse();
        }
        for arm in arms {
            let turn = turn(&scene, options, round, arm)?;
            told(&turn);
            turns.push(turn);
        }
    }
    scene.stop()?;
    Ok(turns)
}

fn turn(
    scene: &Scene,
    options: Options,
    round: u32,
    arm: ForwardingArm,
) -> Result<ForwardingTurn, TestbedError> {
    let mut turn = ForwardingTurn {
        round,
        arm,
        loads: Vec::new(),
        passed: None,
        cores_at_96_mbit: None,
        echoes_ns: Vec::new(),
        load_average: 0.0,
    };
    let mut carrier = match arm {
        ForwardingArm::Bridge => None,
        ForwardingArm::Forwarder => Some(scene.forwarder()?),
        ForwardingArm::Sendbox => Some(scene.sendbox(None)?),
    };
    turn.echoes_ns = source::echoes(scene, options.echoes)?;
    if let Some(carrier) = &mut carrier {
        for frame_bytes in FRAME_BYTES {
            let mut source = Source::open(scene, frame_bytes)?;
            let (delivered, cpu_ns) = with_cpu_time(carrier, || source.saturate(options.duration))?;
            let Delivered { frames, lost, time } = delivered;
            let packets_per_s = frames as f64 / time.as_secs_f64();
            let cpu_ns = cpu_ns as f64 / frames.max(1) as f64;
            turn.loads.push(ForwardingLoad { frame_bytes, packets_per_s, lost, cpu_ns });
        }
    }
    if arm == ForwardingArm::Sendbox {
        turn.passed = scene.passed();
        stop(arm, carrier.take())?;
        carrier = Some(scene.sendbox(Some(SHAPED))?);
    }
    if let Some(carrier) = &mut carrier {
        let offered = if arm == ForwardingArm::Sendbox { OFFERED } else { SHAPED };
        let mut source = Source::open(scene, FRAME_BYTES[0])?;
        let (delivered, cpu_ns) =
            with_cpu_time(carrier, || source.pace(offered, options.duration))?;
        turn.cores_at_96_mbit = Some(cpu_ns as f64 / delivered.time.as_nanos() as f64);
    }
    stop(arm, carrier)?;
    turn.load_average = process::load_average().map_err(TestbedError::Proc)?;
    Ok(turn)
}

fn stop(arm: ForwardingArm, carrier: Option<Program>) -> Result<(), TestbedError> {
    // A role ends when its stdin ends.
    let signal = (arm == ForwardingArm::Sendbox).then_some(Signal::SIGTERM);
    carrier.map_or(Ok(()), |mut carrier| carrier.stop(signal))
}

/// Result of `work`, and the CPU time of a program meanwhile (ns).
fn with_cpu_time<T>(
    program: &mut Program,
    work: impl FnOnce() -> Result<T, TestbedError>,
) -> Result<(T, u64), TestbedError> {
    let cpu_ns = || process::cpu_clock_ns(program.pid()).map_err(TestbedError::Proc);
    let before = cpu_ns()?;
    let done = work()?;
    let used = cpu_ns()? - before;
    program.check()?;
    Ok((done, used))
}
