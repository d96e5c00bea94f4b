//! Faults, upsets and attacks.

use forebay_scenario::{FaultProgram, UpsetKind};

use super::*;

#[test]
fn fault_must_be_possible_after_previous() {
    let fault = |at: &str, end: &str, action: &str| {
        format!(
            "[[fault]]\nat = \"{at}\"\nbundle = \"a\"\nend = \"{end}\"\naction = \"{action}\"\n"
        )
    };
    let of = |actions: &[&str]| {
        let faults = actions.iter().enumerate();
        let faults: String = faults.map(|(s, a)| fault(&format!("{s}s"), "sendbox", a)).collect();
        load(&format!("{PLAN}{faults}"), &[])
    };
    let possible =
        ["stop", "continue", "kill", "restart", "stop", "kill", "restart_other_key", "stop"];
    assert_eq!(experiment(&of(&possible).unwrap(), 1).faults.len(), possible.len());
    for (actions, expected) in [
        (&["restart"][..], "action = \"restart\": allowed is kill or stop or starve while it runs"),
        (&["continue"], "action = \"continue\": allowed is kill or stop or starve while it runs"),
        (&["kill", "stop"], "action = \"stop\": allowed is restart or restart_other_key"),
        (&["starve", "stop"], "allowed is kill or continue while it is starved"),
        (
            &["stop", "restart"],
            "action = \"restart\": allowed is kill or continue while it is stopped",
        ),
    ] {
        let error = of(actions).unwrap_err().to_string();
        assert!(error.contains(expected), "{actions:?}: {error}");
    }
}

#[test]
fn upset_needs_value_and_applies_without_boxes() {
    let upset = |rest: &str| {
        let text = format!("{PLAN}\n[[upset]]\nat = \"1s\"\nbundle = \"a\"\n{rest}\n");
        load(&text, &["bundle.a.enabled=false"])
    };
    let happens = experiment(&upset("what = \"leave_bridge\"").unwrap(), 0).scenario.upsets;
    assert_eq!((happens.len(), happens[0].kind), (1, UpsetKind::LeaveBridge));
    for (rest, expected) in [
        ("what = \"explode\"", "upset.0.what = \"explode\": allowed is \"down\" (the WAN device"),
        ("what = \"mtu\"", "upset.0.mtu is missing"),
        ("what = \"mtu\"\nmtu = 100", "upset.0.mtu = 100: allowed is a whole number, 576 to 9000"),
        ("what = \"down\"\nshare = 0.5", "share = 0.5: allowed is no share with what = \"down\""),
        ("what = \"unseen\"\nshare = 2", "upset.0.share = 2: allowed is a share"),
    ] {
        let error = upset(rest).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let late = PLAN.to_string() + "\n[[upset]]\nat = \"999s\"\nbundle = \"a\"\nwhat = \"up\"\n";
    assert!(load(&late, &[]).unwrap_err().to_string().contains("a time within the run"));
}

#[test]
fn agent_fault_needs_a_flow_with_agent() {
    let text = format!("{PLAN}\n[[fault]]\nat = \"1s\"\nend = \"agent\"\naction = \"kill\"\n");
    let faults = |sets: &[&str]| experiment(&load(&text, sets).unwrap(), 0).scenario.faults;
    assert!(faults(&[]).is_empty());
    let wrong = load(&text, &["fault.0.end=agnet"]).unwrap_err().to_string();
    assert!(wrong.contains("fault.0.end = \"agnet\": allowed is \"sendbox\""), "{wrong}");
    let hit = faults(&["flow.bulk.cc=agent:cubic"]);
    assert_eq!((hit.len(), &hit[0].program), (1, &FaultProgram::Agent));
    let error = load(&text.replace("end =", "bundle = \"a\"\nend ="), &[]).unwrap_err().to_string();
    assert!(error.contains("the agent has none"), "{error}");
}

#[test]
fn attack_needs_box_and_valid_time() {
    let attack = |lines: &str| format!("{PLAN}[attack]\n{lines}");
    let good = "at = \"5s\"\nbundle = \"a\"\ntarget = \"sendbox\"\n";
    let plan = load(&attack(good), &[]).unwrap();
    assert!(experiment(&plan, 0).attack.is_none(), "an arm without boxes");
    assert_eq!(experiment(&plan, 1).scenario.attack.unwrap().messages, 1_000_000);
    let off = load(&attack(good), &["attack.enabled=false"]).unwrap();
    assert!(experiment(&off, 1).attack.is_none());
    for (from, to, expected) in [
        ("5s", "0s", "attack.at = \"0s\": allowed is a time after the start"),
        ("5s", "10s", "attack.at = \"10s\": allowed is a time after the start"),
        ("\"a\"", "\"b\"", "attack.bundle = \"b\": allowed is one of a"),
        ("sendbox", "host", "attack.target = \"host\": allowed is"),
        (
            "target",
            "end",
            "attack.end = \"sendbox\": no such key: allowed is one of at, bundle, target",
        ),
        ("at =", "messages = 0\nat =", "attack.messages = 0: allowed is a whole number"),
    ] {
        let error = load(&attack(&good.replace(from, to)), &[]).expect_err(to).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}
