//! Disturbances of an experiment's programs: faults and an attack.

use std::time::Duration;

use forebay_core::bundle::sendbox::RATES;
use forebay_core::units::Ratio;
use forebay_reader::Reader;

use super::bundles::{DeclaredBundle, bundle_of};
use super::uplink::is_of_sendbox;
use forebay_scenario::{
    Attack, BoxEnd, Fault, FaultAction, FaultProgram, Flow, Platform, Upset, UpsetKind,
};

/// Signals to boxes and the agent, in order of time. With an uplink, none goes to the sendbox that bundles share.
pub(super) fn faults(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
    flows: &[Flow],
) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for table in plan.tables("fault") {
        let at = at(&table, stop, faults.last().map(|last| last.at), "fault");
        // An arm without the program ignores the fault, so that all arms can share the plan.
        let action = table.choice("action", &FaultAction::ALL);
        let Some(Some(program)) = fault_program(&table, bundles, flows) else { continue };
        let (Some(at), Some(action)) = (at, action) else { continue };
        if plan.has("uplink") && is_of_sendbox(&program, bundles) {
            let allowed = "no sendbox of an [uplink]: one sendbox serves all its bundles";
            table.wrong_because("end", allowed);
        }
        let hit = faults.iter().rev().find(|fault| fault.program == program);
        let (possible, condition) = possible_after(hit.map(|fault| fault.action));
        if action.starts() && action != FaultAction::Restart && program == FaultProgram::Agent {
            let allowed = "one of kill, stop, starve, continue, restart for an agent";
            table.wrong_because("action", allowed);
        } else if !possible.contains(&action) {
            let names = FaultAction::ALL.iter().filter(|(_, action)| possible.contains(action));
            let names: Vec<&str> = names.map(|(name, _)| *name).collect();
            table.wrong_because("action", format!("{} while it {condition}", names.join(" or ")));
        }
        faults.push(Fault { at, program, action });
    }
    faults
}

/// The time of an entry in a list: within the run, and not before the previous entry.
fn at(table: &Reader<'_>, stop: Duration, last: Option<Duration>, what: &str) -> Option<Duration> {
    let at = table.duration("at")?;
    if at > stop || last.is_some_and(|last| last > at) {
        let allowed = format!("a time within the run, not before the previous {what}");
        table.wrong_because("at", allowed);
    }
    Some(at)
}

/// The faults that a program can have after `last`, and the program's state.
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

/// The changes that an upset may make, each with the key of its amount.
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

/// The keys for the amount of a change.
const FIGURES: [&str; 4] = ["mtu", "share", "rate", "clients"];
/// Changes of devices and of the share that the receiveboxes see, in order of time.
pub(super) fn upsets(plan: &Reader<'_>, stop: Duration, bundles: &[DeclaredBundle]) -> Vec<Upset> {
    let mut upsets: Vec<Upset> = Vec::new();
    for table in plan.tables("upset") {
        let at = at(&table, stop, upsets.last().map(|last| last.at), "upset");
        let known = bundle_of(&table, bundles);
        let kind = upset_kind(&table);
        let (Some(at), Some(known), Some(kind)) = (at, known, kind) else { continue };
        upsets.push(Upset {
            at,
            bundle: known.bundle.name.clone(),
            pair: known.bundle.pair.clone(),
            at_b: table.choice("site", &[("a", false), ("b", true)]).unwrap_or(false),
            kind,
        });
    }
    upsets
}

fn upset_kind(table: &Reader<'_>) -> Option<UpsetKind> {
    let names = UPSETS.map(|(name, key)| (name, (name, key)));
    let (name, wanted) = table.choice("what", &names)?;
    for key in FIGURES.into_iter().filter(|key| *key != wanted && table.has(key)) {
        table.wrong_because(key, format!("no {key} with what = {name:?}"));
    }
    let rate = || table.require("rate", table.rate("rate"));
    let clients = || table.require("clients", table.whole("clients"));
    Some(match name {
        "down" => UpsetKind::Down,
        "up" => UpsetKind::Up,
        "leave_bridge" => UpsetKind::LeaveBridge,
        "join_bridge" => UpsetKind::JoinBridge,
        "mtu" => UpsetKind::Mtu(table.require("mtu", table.whole("mtu"))?),
        "address" => UpsetKind::Address,
        "no_address" => UpsetKind::NoAddress,
        "offloads_on" => UpsetKind::OffloadsOn,
        "offloads_off" => UpsetKind::OffloadsOff,
        "remove_lan" => UpsetKind::RemoveLan,
        "make_lan" => UpsetKind::MakeLan,
        "foreign_tc" => {
            let rate = rate()?;
            if !RATES.contains(&rate) {
                let allowed = format!("a rate from {} to {}", RATES.start(), RATES.end());
                table.wrong_because("rate", allowed);
            }
            UpsetKind::ForeignTc(rate)
        }
        "status_clients" => UpsetKind::StatusClients(clients()?),
        "metrics_clients" => UpsetKind::MetricsClients(clients()?),
        "suspend" => UpsetKind::Suspend,
        "resume" => UpsetKind::Resume,
        "unseen" => {
            UpsetKind::Unseen(table.require("share", table.share("share").and_then(Ratio::new))?)
        }
        _ => UpsetKind::Forged(rate()?),
    })
}

/// The program that a fault hits; `Some(None)` if the arm has no such program.
fn fault_program(
    table: &Reader<'_>,
    bundles: &[DeclaredBundle],
    flows: &[Flow],
) -> Option<Option<FaultProgram>> {
    if table.text("end")? == "agent" {
        if table.has("bundle") {
            table.wrong_because("bundle", "no bundle: the agent has none");
        }
        let has_agent = flows.iter().any(|flow| flow.platform == Some(Platform::Agent));
        return Some(has_agent.then_some(FaultProgram::Agent));
    }
    // Read before the bundle, which only a box needs.
    let end = table.choice("end", &ENDS)?;
    let known = bundle_of(table, bundles)?;
    let bundle = known.bundle.name.clone();
    Some(known.enabled.then_some(FaultProgram::Box { bundle, end }))
}

/// Values of the keys `end` and `target`.
const ENDS: [(&str, BoxEnd); 2] =
    [("sendbox", BoxEnd::Sendbox), ("receivebox", BoxEnd::Receivebox)];

/// Hostile messages to a box.
pub(super) fn attack(
    plan: &Reader<'_>,
    stop: Duration,
    bundles: &[DeclaredBundle],
) -> Option<Attack> {
    let table = plan.table("attack")?;
    let (at, known) = (table.duration("at"), bundle_of(&table, bundles));
    // At the start there is nothing to replay yet.
    if at.is_some_and(|at| at.is_zero() || at >= stop) {
        table.wrong_because("at", "a time after the start and before the plan's stop");
    }
    let end = table.choice("target", &ENDS);
    let messages = u64::from(table.whole("messages").unwrap_or(1_000_000));
    let known = known?;
    // An arm without the bundle has no box to attack.
    let happens = table.switch("enabled").unwrap_or(true) && known.enabled;
    let bundle = known.bundle.name.clone();
    happens.then_some(Attack { at: at?, bundle, end: end?, messages })
}
