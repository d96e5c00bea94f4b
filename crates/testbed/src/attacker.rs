//! The attacker of a run, beside the box that it attacks.

use std::path::{Path, PathBuf};

use super::TestbedError;
use super::boxes::{Boxes, messages_at, namespace};
use super::program::Program;
use super::run::{READY_TIMEOUT, Starter, read_json};
use super::topology::Topology;
use crate::generator::hostile::{self, HostileSpec};
use crate::scenario::{Attack, FaultProgram, Scenario};
use forebay_core::record::AttackRecord;
use forebay_host::clock;
use forebay_host::daemon::status::MessageCounters;

/// The box is asked for its counters this long (ns) before the attack: some ticks of the testbed.
const LOOK_NS: u64 = 500_000_000;

/// A running attacker.
pub(super) struct Attacker {
    /// The process.
    pub program: Program,
    attack: Attack,
    output: PathBuf,
    /// The clock and the CPU time of the box (ns) when the attack began.
    before: Option<(u64, u64)>,
    /// What the box had counted by then.
    seen_before: Option<MessageCounters>,
    /// CPU time of the box during the attack, in cores.
    box_cores: Option<f64>,
}

impl Attacker {
    /// Starts it and waits until it listens.
    pub fn start(
        attack: Attack,
        scenario: &Scenario,
        topology: &Topology,
        start: &Starter<'_>,
    ) -> Result<Self, TestbedError> {
        let target = attack.target;
        let bundle = scenario.pairs.get(target.pair).and_then(|pair| {
            if target.reverse { pair.reverse_bundle.as_ref() } else { pair.forward_bundle.as_ref() }
        });
        bundle.ok_or(TestbedError::FaultTarget { target })?;
        let output = attack_output(start.dir);
        let spec = HostileSpec {
            // Where the kernel delivers what the box's own address gets.
            device: "br0".into(),
            target: messages_at(target, scenario.routed),
            peer: messages_at(target.peer(), scenario.routed),
            recorded_until_ns: recorded_until_ns(&attack, scenario),
            at_ns: attack.at_ns,
            messages: attack.messages,
            output: output.clone(),
            seed: scenario.seed,
        };
        let namespace = namespace(&topology.pairs[target.pair], target);
        let mut program = start.role("hostile", namespace, "attacker", &spec)?;
        program.await_line("ready", READY_TIMEOUT)?;
        Ok(Self { program, attack, output, before: None, seen_before: None, box_cores: None })
    }

    /// Looks after it, and notes what the attack costs the box; to be called at every tick.
    pub fn watch(&mut self, started_ns: u64, boxes: &Boxes<'_>) -> Result<(), TestbedError> {
        self.program.check()?;
        let now = clock::now().as_nanos();
        let begins_ns = started_ns.saturating_add(self.attack.at_ns);
        if self.seen_before.is_none() && now + LOOK_NS >= begins_ns {
            self.seen_before = boxes.messages(self.attack.target);
        }
        if self.box_cores.is_some() || now < begins_ns {
            return Ok(());
        }
        let Some(cpu_ns) = boxes.cpu_time_ns(self.attack.target) else { return Ok(()) };
        let (since, cpu_before_ns) = *self.before.get_or_insert((now, cpu_ns));
        if self.program.has_said(hostile::DONE)? {
            let elapsed_ns = now.saturating_sub(since).max(1);
            let used_ns = cpu_ns.saturating_sub(cpu_before_ns);
            self.box_cores = Some(used_ns as f64 / elapsed_ns as f64);
        }
        Ok(())
    }

    /// Ends it, and asks the box what it made of the attack.
    pub fn finish(mut self, boxes: &Boxes<'_>) -> Result<AttackRecord, TestbedError> {
        self.program.stop(None)?;
        let sent: AttackRecord = read_json(&self.output)?;
        let seen = boxes.messages(self.attack.target).unwrap_or_default();
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
fn recorded_until_ns(attack: &Attack, scenario: &Scenario) -> u64 {
    let ends = [attack.target, attack.target.peer()];
    let is_hit = |program| matches!(program, FaultProgram::Box(target) if ends.contains(&target));
    let faults = scenario.faults.iter().filter(|fault| is_hit(fault.program));
    faults.map(|fault| fault.at_ns).chain([attack.at_ns]).min().unwrap_or(attack.at_ns)
}

fn attack_output(dir: &Path) -> PathBuf {
    dir.join("attack-output.json")
}
