//! What it costs to carry packets: a sendbox beside a bare forwarder and a plain bridge.
//!
//! ```text
//!  hosts              box                                         far side
//!  eth0 ───────────── lan   bridge | forwarder | sendbox   wan ── eth0, receivebox
//!  frames, echoes                                                 counted, echoed
//! ```
//! The forwarder copies each frame from one AF_XDP socket into another and does nothing else: what a datapath in user
//! space costs on this machine at the least. The three take turns, block by block, so that what the machine does
//! meanwhile meets all of them. What returns goes over the bridge in every arm.

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

/// Who carries the packets from `lan` to `wan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The kernel's bridge.
    Bridge,
    /// The bare forwarder.
    Forwarder,
    /// A sendbox, with SFQ and sampling.
    Sendbox,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often each arm has its turn, 1 or more.
    pub rounds: u32,
    /// Of each block of traffic.
    pub duration: Duration,
    /// Echoes in a block.
    pub echoes: u32,
    /// The sendbox has a thread for its receive queue, and what carries has all processors but the source's.
    pub threads: bool,
}

/// A block of full load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Frames that arrived, a second.
    pub packets_per_s: f64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// CPU time of the carrying process for a frame that arrived (ns), with the packet work (softirq) in its context,
    /// the delivery at the far side among it.
    pub cpu_ns: f64,
}

/// One turn of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    /// Counted from 0.
    pub round: u32,
    /// Who carried.
    pub arm: Arm,
    /// With as many frames on the way as no ring loses, full frames and small ones; none of a bridge, which has no
    /// process.
    pub loads: Vec<Load>,
    /// Frames of the bundle that the kernel carried past the sendbox, which then was not measured: 0. `None` of others.
    pub passed: Option<u64>,
    /// Share of a processor that the process takes at 96 Mbit/s of full frames: the sendbox shapes and has a queue.
    pub cores_at_96_mbit: Option<f64>,
    /// From sending a frame to its echo, without other traffic (ns), ascending.
    pub echoes_ns: Vec<u64>,
    /// Load average of the machine over one minute at the end.
    pub load_average: f64,
}

/// Full frames, and the size of an acknowledgement.
const FRAME_BYTES: [usize; 2] = [1514, 66];
/// A queue stands where more comes than leaves.
const OFFERED: Rate = Rate::from_mbit_per_sec(100);
const SHAPED: Rate = Rate::from_mbit_per_sec(96);

/// Has all arms carry in turn; `told` is told of each turn as it ends. Namespaces and programs go with the calling
/// thread, which keeps to one processor under SCHED_FIFO from now on, and files of the programs into `dir`.
///
/// # Errors
///
/// No root, no tool `ip`, a program that does not start.
pub fn measure(
    binary: &Path,
    dir: &Path,
    options: Options,
    told: &mut dyn FnMut(&Turn),
) -> Result<Vec<Turn>, TestbedError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(TestbedError::NotRoot);
    }
    let _lock = lock::take(&mut |_| {})?;
    let processors = process::processors().map_err(TestbedError::Proc)?;
    // Whatever else the machine does, packets come as they should.
    go_realtime();
    // The source has the first one, what carries the last, or all others.
    let last = processors.len() - 1;
    let carriers = if options.threads { 1.min(last) } else { last };
    let scene = Scene::build(binary, dir, processors[0], &processors[carriers..], options.threads)?;
    let mut turns = Vec::new();
    for round in 0..options.rounds {
        let mut arms = [Arm::Bridge, Arm::Forwarder, Arm::Sendbox];
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

fn turn(scene: &Scene, options: Options, round: u32, arm: Arm) -> Result<Turn, TestbedError> {
    let mut turn = Turn {
        round,
        arm,
        loads: Vec::new(),
        passed: None,
        cores_at_96_mbit: None,
        echoes_ns: Vec::new(),
        load_average: 0.0,
    };
    let mut carrier = match arm {
        Arm::Bridge => None,
        Arm::Forwarder => Some(scene.forwarder()?),
        Arm::Sendbox => Some(scene.sendbox(None)?),
    };
    turn.echoes_ns = source::echoes(scene, options.echoes)?;
    if let Some(carrier) = &mut carrier {
        for frame_bytes in FRAME_BYTES {
            let mut source = Source::open(scene, frame_bytes)?;
            let (delivered, cpu_ns) = with_cpu_time(carrier, || source.saturate(options.duration))?;
            let Delivered { frames, lost, time } = delivered;
            let packets_per_s = frames as f64 / time.as_secs_f64();
            let cpu_ns = cpu_ns as f64 / frames.max(1) as f64;
            turn.loads.push(Load { frame_bytes, packets_per_s, lost, cpu_ns });
        }
    }
    if arm == Arm::Sendbox {
        turn.passed = scene.passed();
        stop(arm, carrier.take())?;
        carrier = Some(scene.sendbox(Some(SHAPED))?);
    }
    if let Some(carrier) = &mut carrier {
        let offered = if arm == Arm::Sendbox { OFFERED } else { SHAPED };
        let mut source = Source::open(scene, FRAME_BYTES[0])?;
        let (delivered, cpu_ns) =
            with_cpu_time(carrier, || source.pace(offered, options.duration))?;
        turn.cores_at_96_mbit = Some(cpu_ns as f64 / delivered.time.as_nanos() as f64);
    }
    stop(arm, carrier)?;
    turn.load_average = process::load_average().map_err(TestbedError::Proc)?;
    Ok(turn)
}

fn stop(arm: Arm, carrier: Option<Program>) -> Result<(), TestbedError> {
    // A role ends with its stdin.
    let signal = (arm == Arm::Sendbox).then_some(Signal::SIGTERM);
    carrier.map_or(Ok(()), |mut carrier| carrier.stop(signal))
}

/// What `work` answers, and the CPU time of a program meanwhile (ns).
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
