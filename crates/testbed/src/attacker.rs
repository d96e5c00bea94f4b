//! The attacker of a run, in the namespace of the box under attack.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::TestbedError;
use super::boxes::{Boxes, messages_at, namespace};
use super::program::Program;
use super::run::{READY_TIMEOUT, Starter, read_json};
use super::topology::Topology;
use crate::generator::hostile::{self, HostileSpec};
use crate::generator::ns;
use crate::sites::{self, FaultTarget};
use forebay_core::record::AttackRecord;
use forebay_host::clock;
use forebay_host::daemon::status::MessageCounters;
use forebay_scenario::{Attack, FaultProgram, Scenario};

/// Time before the attack (ns) at which the testbed reads the box's counters: some ticks.
const LOOK_NS: u64 = 500_000_000;

/// A running attacker.
pub(super) struct Attacker {
    /// The process.
    pub program: Program,
    target: FaultTarget,
    at: Duration,
    output: PathBuf,
    /// Time and CPU time of the box (ns) at the start of the attack.
    before: Option<(u64, u64)>,
    /// Message counters of the box just before the attack.
    seen_before: Option<MessageCounters>,
    /// CPU time of the box during the attack, in cores.
    box_cores: Option<f64>,
}

impl Attacker {
    /// Starts the attacker and waits until it listens.
    pub fn start(
        attack: &Attack,
        scenario: &Scenario,
        topology: &Topology,
        start: &Starter<'_>,
    ) -> Result<Self, TestbedError> {
        let target = sites::target(scenario, &attack.bundle, attack.end)?;
        let output = attack_output(start.dir);
        let spec = HostileSpec {
            // The kernel delivers packets to the box's own address here.
            device: "br0".into(),
            target: messages_at(target, scenario.routed),
            peer: messages_at(target.peer(), scenario.routed),
            recorded_until_ns: ns(recorded_until(attack, scenario)),
            at_ns: ns(attack.at),
            messages: attack.messages,
            output: output.clone(),
            seed: scenario.seed,
        };
        let namespace = namespace(&topology.pairs[target.pair], target);
        let mut program = start.role("hostile", namespace, "attacker", &spec)?;
        program.await_line("ready", READY_TIMEOUT)?;
        Ok(Self {
            program,
            target,
            at: attack.at,
            output,
            before: None,
            seen_before: None,
            box_cores: None,
        })
    }

    /// Checks the attacker and records the cost of the attack to the box; call it at every tick.
    pub fn watch(&mut self, started_ns: u64, boxes: &Boxes<'_>) -> Result<(), TestbedError> {
        self.program.check()?;
        let now = clock::now().as_nanos();
        let begins_ns = started_ns.saturating_add(ns(self.at));
        if self.seen_before.is_none() && now + LOOK_NS >= begins_ns {
            self.seen_before = boxes.messages(self.target);
        }
        if self.box_cores.is_some() || now < begins_ns {
            return Ok(());
        }
        let Some(cpu_ns) = boxes.cpu_time_ns(self.target) else { return Ok(()) };
        let (since, cpu_before_ns) = *self.before.get_or_insert((now, cpu_ns));
        if self.program.has_said(hostile::DONE)? {
            let elapsed_ns = now.saturating_sub(since).max(1);
            let used_ns = cpu_ns.saturating_sub(cpu_before_ns);
            self.box_cores = Some(used_ns as f64 / elapsed_ns as f64);
        }
        Ok(())
    }

    /// Ends the attacker and reads how the box counted its messages.
    pub fn finish(mut self, boxes: &Boxes<'_>) -> Result<AttackRecord, TestbedError> {
        self.program.stop(None)?;
        let sent: AttackRecord = read_json(&self.output)?;
        let seen = boxes.messages(self.target).unwrap_or_default();
        let before = self.seen_before.unwrap_or_default();
        Ok(AttackRecord {
            box_cores: self.box_cores,
            received: seen.received.saturating_sub(before.received),
            rejected: seen.rejected_since(&before),
            ..sent
        })
    }
}

/// The recorded session ends with the first fault of the bundle.
fn recorded_until(attack: &Attack, scenario: &Scenario) -> Duration {
    let is_hit = |program: &FaultProgram| matches!(program, FaultProgram::Box { bundle, .. } if *bundle == attack.bundle);
    let faults = scenario.faults.iter().filter(|fault| is_hit(&fault.program));
    faults.map(|fault| fault.at).fold(attack.at, Duration::min)
}

fn attack_output(dir: &Path) -> PathBuf {
    dir.join("attack-output.json")
}
