//! Many sites.

use std::time::Duration;

use forebay_scenario::Topology;

use super::*;

/// A plan with many sites.
const SITES: &str = r#"
name = "p"
stop = "10s"
bottleneck = { rate = "5Mbit/s", rtt = "20ms", qdisc = { kind = "fifo", limit = "100ms" } }
topology = { sites = 12, routers = 4, peers = 2, utilization = "80%", deployment = "50%" }
[[flow]]
name = "web"
bundle = "site"
[flow.traffic]
kind = "requests"
sizes = "mixed"
load = "50Mbit/s"
connections = 100
sampling = "iid"
[[bundle]]
name = "site"
cc = "copa"
[[arm]]
name = "status_quo"
set = { bundle.site.enabled = false }
[[arm]]
name = "copa"
"#;

fn topology(run: &Experiment) -> &Topology {
    run.topology.as_ref().unwrap()
}

#[test]
fn arms_share_sites_and_requests() {
    let plan = load(SITES, &[]).unwrap();
    let [without, with] = [0, 1].map(|arm| experiment(&plan, arm));
    let names = |run: &Experiment| run.flows.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&without), ["web-deployers", "web-others"]);
    assert_eq!(names(&without), names(&with));
    assert_eq!(topology(&without).ends, topology(&with).ends);
    let hashes = |run: &Experiment| {
        let of = |flow| run.schedule(flow).unwrap().unwrap().hash();
        run.flows.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(hashes(&without), hashes(&with));
    let bundles = |run| topology(run).pairs.iter().filter_map(|pair| pair.bundle).count();
    assert!(bundles(&without) == 0 && bundles(&with) > 0);
    assert!(with.bundles.is_empty() && with.links().any(|link| link.name == "r1-r0"));
    let pair = with.site_pair(0, 0).unwrap();
    assert!(pair.deploys && pair.rtt > Duration::from_millis(10));
    assert!(with.site_pair(0, 100).is_none() && with.site_pair(2, 0).is_none());
    // Every seed has its own sites.
    let other = plan.experiment(&plan.arms[1], &plan.cells[0], 2).unwrap();
    assert_ne!(topology(&other).ends, topology(&with).ends);
    assert_eq!(other.sha256, with.sha256);
}

#[test]
fn topology_refuses_incompatible_keys() {
    for (set, expected) in [
        ("topology.sites=3", "topology.sites = 3: allowed is a whole number, 2 to 2000, at least"),
        ("topology.routers=1", "topology.routers = 1: allowed is a whole number, 2 to 200"),
        (
            "topology.utilization=0",
            "topology.utilization = 0: allowed is a share from 0 to 1 such as",
        ),
        ("topology.deployment=2", "topology.deployment = 2: allowed is a share from 0 to 1"),
        ("topology.sitess=3", "topology.sitess = 3: no such key: allowed is one of sites, routers"),
        ("reverse.rate=5Mbit/s", "allowed is nothing with [topology]"),
        ("bottleneck.hops=2", "bottleneck.hops = 2: allowed is nothing with [topology]"),
        ("flow.web.rtt=50ms", "flow.web.rtt = \"50ms\": allowed is nothing with [topology]"),
        ("flow.web.traffic.sampling=strata", "allowed is with [topology] requests with"),
        ("flow.web.traffic.connections=each", "allowed is with [topology] requests with"),
    ] {
        let error = load(SITES, &[set]).expect_err(set).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
    let second = SITES.replacen("[[arm]]", "[[bundle]]\nname = \"b\"\ncc = \"copa\"\n[[arm]]", 1);
    let error = load(&second, &[]).unwrap_err().to_string();
    assert!(error.contains("bundle.b.name = \"b\": allowed is one [[bundle]] with"), "{error}");
}
