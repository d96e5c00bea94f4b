//! What hits the programs of an experiment: faults and an attack.

use std::time::Duration;

use super::{DeclaredBundle, bundle_names};
use crate::plan::error::PlanError;
use crate::plan::experiment::{Attack, BoxEnd, Fault, FaultAction, FaultProgram, Flow, Platform};
use crate::plan::reader::Reader;
use crate::plan::schema;

/// Signals to boxes and the agent, in order of time.
pub(super) fn faults(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
    flows: &[Flow],
) -> Result<Vec<Fault>, PlanError> {
    let mut faults: Vec<Fault> = Vec::new();
    for table in plan.tables("fault", &schema::FAULT)? {
        let at = table.require("at", table.duration("at")?)?;
        if at > stop || faults.last().is_some_and(|last| last.at > at) {
            let allowed = "a time within the run, not before the previous fault";
            return Err(table.wrong_because("at", allowed));
        }
        let program = fault_program(&table, bundles, flows)?;
        let actions = [
            ("kill", FaultAction::Kill),
            ("stop", FaultAction::Stop),
            ("continue", FaultAction::Continue),
            ("restart", FaultAction::Restart),
        ];
        let action = table.require("action", table.choice("action", &actions)?)?;
        // An arm without the program has none to hit: the same plan, nothing happens.
        if let Some(program) = program {
            let hit = faults.iter().rev().find(|fault| fault.program == program);
            let (possible, condition) = possible_after(hit.map(|fault| fault.action));
            if !possible.contains(&action) {
                let names = actions.iter().filter(|(_, action)| possible.contains(action));
                let names: Vec<&str> = names.map(|(name, _)| *name).collect();
                let allowed = format!("{} while it {condition}", names.join(" or "));
                return Err(table.wrong_because("action", &allowed));
            }
            faults.push(Fault { at, program, action });
        }
    }
    Ok(faults)
}

/// What can hit a program that `last` has hit, and what it does then.
fn possible_after(last: Option<FaultAction>) -> (&'static [FaultAction], &'static str) {
    match last {
        None | Some(FaultAction::Continue | FaultAction::Restart) => {
            (&[FaultAction::Kill, FaultAction::Stop], "runs")
        }
        Some(FaultAction::Stop) => (&[FaultAction::Kill, FaultAction::Continue], "is stopped"),
        Some(FaultAction::Kill) => (&[FaultAction::Restart], "is dead"),
    }
}

/// What a fault hits; `None` where the arm has no such program.
fn fault_program(
    table: &Reader<'_>,
    bundles: &[DeclaredBundle],
    flows: &[Flow],
) -> Result<Option<FaultProgram>, PlanError> {
    if table.text("end")? == Some("agent") {
        if table.has("bundle") {
            return Err(table.wrong_because("bundle", "no bundle: the agent has none"));
        }
        let has_agent = flows.iter().any(|flow| flow.platform == Some(Platform::Agent));
        return Ok(has_agent.then_some(FaultProgram::Agent));
    }
    // Before the bundle, which only a box needs.
    let end = table.require("end", table.choice("end", &ENDS)?)?;
    let known = bundle_of(table, bundles)?;
    let bundle = known.bundle.name.clone();
    Ok(known.enabled.then_some(FaultProgram::Box { bundle, end }))
}

const ENDS: [(&str, BoxEnd); 2] =
    [("sendbox", BoxEnd::Sendbox), ("receivebox", BoxEnd::Receivebox)];

/// The bundle that `table` must name.
fn bundle_of<'a>(
    table: &Reader<'_>,
    bundles: &'a [DeclaredBundle],
) -> Result<&'a DeclaredBundle, PlanError> {
    let name = table.require("bundle", table.name("bundle")?)?;
    bundles
        .iter()
        .find(|known| known.bundle.name == name)
        .ok_or_else(|| table.wrong_because("bundle", &format!("one of {}", bundle_names(bundles))))
}

/// Hostile messages to a box.
pub(super) fn attack(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
) -> Result<Option<Attack>, PlanError> {
    let Some(table) = plan.table("attack", &schema::ATTACK)? else { return Ok(None) };
    let at = table.require("at", table.duration("at")?)?;
    // Before, there is nothing to replay yet.
    if at.is_zero() || at >= stop {
        return Err(table.wrong_because("at", "a time after the start and before the plan's stop"));
    }
    let known = bundle_of(&table, bundles)?;
    let end = table.require("target", table.choice("target", &ENDS)?)?;
    let messages = u64::from(table.count("messages", 1..=1_000_000_000)?.unwrap_or(1_000_000));
    // An arm without the bundle has no box to attack.
    let happens = table.switch("enabled")?.unwrap_or(true) && known.enabled;
    let bundle = known.bundle.name.clone();
    Ok(happens.then_some(Attack { at, bundle, end, messages }))
}
