//! A host that is its own sendbox, and one that is its own receivebox.

use crate::alone;
use crate::course::{self, Ends};
use crate::vpc::{Vpc, detour, gateway_at, host_at, prefix};

#[test]
#[ignore = "a minute of real traffic: make test-gateway"]
fn long_course_of_own_sendbox() {
    let _alone = alone();
    let vpc = Vpc::build([false, true]);
    let [near, far] = &vpc.sites;
    let ends = Ends {
        sendbox: &near.host,
        receivebox: &far.gateway,
        hosts: [&near.host, &far.host],
        wan: ["eth0"; 2],
        listen: [host_at(0), gateway_at(1)],
        networks: [prefix(0), prefix(1)],
        more: "datapath = \"kernel\"\nown = true\n".into(),
        detour: detour(),
    };
    course::long("a host as its own sendbox", &ends).judge(&vpc.link.finish());
}

#[test]
#[ignore = "a minute of real traffic: make test-gateway"]
fn long_course_of_own_receivebox() {
    let _alone = alone();
    let vpc = Vpc::build([true, false]);
    let [near, far] = &vpc.sites;
    let ends = Ends {
        sendbox: &near.gateway,
        receivebox: &far.host,
        hosts: [&near.host, &far.host],
        wan: ["eth0"; 2],
        listen: [gateway_at(0), host_at(1)],
        networks: [prefix(0), prefix(1)],
        more: "datapath = \"kernel\"\n".into(),
        detour: detour(),
    };
    course::long("a host as its own receivebox", &ends).judge(&vpc.link.finish());
}
