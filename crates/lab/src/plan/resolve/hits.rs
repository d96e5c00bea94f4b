//! What hits the programs of an experiment: faults and an attack.

use std::time::Duration;

use super::bundles::{DeclaredBundle, known_bundles, shaper_rate};
use super::uplink::is_of_sendbox;
use crate::experiment::{
    Attack, BoxEnd, Fault, FaultAction, FaultProgram, Flow, Platform, Upset, UpsetKind,
};
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::schema;

/// Signals to boxes and the agent, in order of time; none to a sendbox that bundles share, where there is an uplink.
pub(super) fn faults(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
    flows: &[Flow],
    has_uplink: bool,
) -> Result<Vec<Fault>, PlanError> {
    let mut faults: Vec<Fault> = Vec::new();
    for table in plan.tables("fault", &schema::FAULT)? {
        let at = table.require("at", table.duration("at")?)?;
        if at > stop || faults.last().is_some_and(|last| last.at > at) {
            let allowed = "a time within the run, not before the previous fault";
            return Err(table.wrong_because("at", allowed));
        }
        let program = fault_program(&table, bundles, flows)?;
        let actions = &FaultAction::ALL;
        let action = table.require("action", table.choice("action", actions)?)?;
        // An arm without the program has none to hit: the same plan, nothing happens.
        if let Some(program) = program {
            if has_uplink && is_of_sendbox(&program, bundles) {
                let allowed = "no sendbox of an [uplink], which is one for all its bundles";
                return Err(table.wrong_because("end", allowed));
            }
            if action.starts() && action != FaultAction::Restart && program == FaultProgram::Agent {
                let allowed = "one of kill, stop, starve, continue, restart for an agent";
                return Err(table.wrong_because("action", allowed));
            }
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
        Some(FaultAction::Stop) => (&[FaultAction::Kill, FaultAction::Continue], "is stopped"),
        Some(FaultAction::Starve) => (&[FaultAction::Kill, FaultAction::Continue], "is starved"),
        Some(FaultAction::Kill) => (
            &[
                FaultAction::Restart,
                FaultAction::RestartOtherKey,
                FaultAction::RestartFullLog,
                FaultAction::RestartBlockedLog,
            ],
            "is dead",
        ),
        None | Some(_) => (&[FaultAction::Kill, FaultAction::Stop, FaultAction::Starve], "runs"),
    }
}

/// What an upset may change, and which key says how far.
const UPSETS: [(&str, &str); 18] = [
    ("down", ""),
    ("up", ""),
    ("leave_bridge", ""),
    ("join_bridge", ""),
    ("mtu", "mtu"),
    ("address", ""),
    ("no_address", ""),
    ("offloads_on", ""),
    ("offloads_off", ""),
    ("remove_lan", ""),
    ("make_lan", ""),
    ("foreign_tc", "rate"),
    ("status_clients", "clients"),
    ("metrics_clients", "clients"),
    ("unseen", "share"),
    ("forged", "rate"),
    ("suspend", ""),
    ("resume", ""),
];

/// The keys that say how far something changes.
const FIGURES: [&str; 4] = ["mtu", "share", "rate", "clients"];
/// Most silent clients: a process has 1,024 files by default.
const CLIENTS_MAX: u32 = 1000;

/// Changes of devices and of what the receiveboxes see, in order of time.
pub(super) fn upsets(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
) -> Result<Vec<Upset>, PlanError> {
    let mut upsets: Vec<Upset> = Vec::new();
    for table in plan.tables("upset", &schema::UPSET)? {
        let at = table.require("at", table.duration("at")?)?;
        if at > stop || upsets.last().is_some_and(|last| last.at > at) {
            let allowed = "a time within the run, not before the previous upset";
            return Err(table.wrong_because("at", allowed));
        }
        let known = bundle_of(&table, bundles)?;
        let names = UPSETS.map(|(name, key)| (name, (name, key)));
        let (name, wanted) = table.require("what", table.choice("what", &names)?)?;
        if let Some(key) = FIGURES.into_iter().find(|key| *key != wanted && table.has(key)) {
            return Err(table.wrong_because(key, &format!("no {key} with what = {name:?}")));
        }
        let kind = match name {
            "down" => UpsetKind::Down,
            "up" => UpsetKind::Up,
            "leave_bridge" => UpsetKind::LeaveBridge,
            "join_bridge" => UpsetKind::JoinBridge,
            "mtu" => UpsetKind::Mtu(table.require("mtu", table.count("mtu", 576..=9000)?)?),
            "address" => UpsetKind::Address,
            "no_address" => UpsetKind::NoAddress,
            "offloads_on" => UpsetKind::OffloadsOn,
            "offloads_off" => UpsetKind::OffloadsOff,
            "remove_lan" => UpsetKind::RemoveLan,
            "make_lan" => UpsetKind::MakeLan,
            "foreign_tc" => {
                UpsetKind::ForeignTc(table.require("rate", shaper_rate(&table, "rate")?)?)
            }
            "status_clients" => UpsetKind::StatusClients(clients(&table)?),
            "metrics_clients" => UpsetKind::MetricsClients(clients(&table)?),
            "suspend" => UpsetKind::Suspend,
            "resume" => UpsetKind::Resume,
            "unseen" => UpsetKind::Unseen(table.require("share", table.share("share")?)?),
            _ => UpsetKind::Forged(table.require("rate", table.parsed("rate")?)?),
        };
        upsets.push(Upset {
            at,
            bundle: known.bundle.name.clone(),
            pair: known.bundle.pair.clone(),
            at_b: table.choice("site", &[("a", false), ("b", true)])?.unwrap_or(false),
            kind,
        });
    }
    Ok(upsets)
}

fn clients(table: &Reader<'_>) -> Result<u32, PlanError> {
    table.require("clients", table.count("clients", 0..=CLIENTS_MAX)?)
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
        .ok_or_else(|| table.wrong_because("bundle", &known_bundles(bundles)))
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
