use alloc::format;
use alloc::string::String;

use super::super::wire::ToldScope;
use super::*;

pub fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A scope of these destinations and sources, with excluded destinations and own addresses.
pub fn scope(to: &[&str], from: &[&str], left_out: &[&str], own: &[&str]) -> Scope {
    let hosts = |texts: &[&str]| -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    Scope::new(nets(to), nets(from), hosts(left_out), hosts(own))
}

pub fn told(differences: &[Difference]) -> Vec<String> {
    differences
        .iter()
        .map(|Difference { kind, prefixes, more }| format!("{kind:?} {prefixes:?} {more}"))
        .collect()
}

#[test]
fn equal_scopes_do_not_differ_however_written() {
    let one = scope(&["10.1.2.0/23", "2001:db8::/32"], &["10.1.1.0/24"], &[], &[]);
    let other = scope(
        &["2001:DB8::1/32", "10.1.3.0/24", "10.1.2.0/24", "10.1.2.9/32"],
        &["10.1.1.7/24"],
        // Addresses outside the prefixes do not matter.
        &["10.9.9.9", "2001:db9::1"],
        &["10.1.3.1"],
    );
    assert_eq!(compare(&one, &other), []);
    assert_eq!(one, other);
    assert_eq!(ToldScope::new(&one), ToldScope::new(&other));
}

#[test]
fn prefix_of_one_box_is_named_with_it() {
    let sendbox = scope(&["10.1.2.0/24", "10.1.4.0/24"], &["10.1.0.0/24"], &["10.1.2.9"], &[]);
    let receivebox = scope(&["10.1.2.0/23"], &["10.1.0.0/25", "fd00::/64"], &["10.1.2.7"], &[]);
    assert_eq!(
        told(&compare(&sendbox, &receivebox)),
        [
            "NotCounted(Destination) [10.1.4.0/24] 0",
            "LeftOutByReceivebox [10.1.2.7/32] 0",
            "NotTaken(Destination) [10.1.3.0/24] 0",
            "LeftOutBySendbox [10.1.2.9/32] 0",
            "NotCounted(Source) [10.1.0.128/25] 0",
            "NotTaken(Source) [fd00::/64] 0",
        ]
    );
    // Addresses that both exclude, and sources that the sendbox does not name, are no difference.
    let sendbox = scope(&["10.1.2.0/23"], &[], &["10.1.2.7"], &["10.1.0.9"]);
    assert_eq!(compare(&sendbox, &receivebox), []);
}

#[test]
fn largest_prefixes_are_named_and_the_rest_counted() {
    let differences = compare(
        &scope(&["10.0.0.0/8"], &[], &[], &[]),
        &scope(&["10.1.2.0/24"], &["10.9.0.0/16"], &[], &[]),
    );
    let named = "[10.128.0.0/9, 10.64.0.0/10, 10.32.0.0/11, 10.16.0.0/12]";
    assert_eq!(told(&differences), [format!("NotCounted(Destination) {named} 12")]);
}
