//! Which class a packet belongs to: rules over header fields, first match wins.
//!
//! ```toml
//! qdisc = { kind = "prio", bands = [{ kind = "sfq" }, { kind = "fifo" }], classes = [
//!     { dscp = 46, class = 0 },
//!     { protocol = "udp", port = "5000-6000", class = 0 },
//!     { source_prefix = "10.0.0.0/8", class = 1 },
//! ] }
//! ```
//! All conditions of a rule must hold; `port` and `prefix` hold for either end. A rule without a condition
//! matches everything. A packet that no rule matches belongs to the last class, and so does every packet
//! where there are no rules. Linux' `ets` does the same, and in RFC 2474 section 4.1 traffic without an
//! agreement is best effort. Linux' `prio` maps such packets by their TOS instead, best effort to the second
//! of three bands (tc-prio(8)).
//!
//! Classes are the bands of `prio` and `ets`, and `weights` of `sfq` and `drr` apply to them. Packets carry
//! one class, so one discipline of a queue sorts by it and none inside that one does.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use ipnet::IpNet;

use crate::packet::Headers;
use crate::qdisc::bands::BANDS;
use crate::qdisc::weights::WEIGHTS;
use crate::qdisc::{given, takes};
use crate::spec::{DescribedParam, Parameter, Spec, SpecError, Value};

/// Most classes: TCQ_PRIO_BANDS and TCQ_ETS_MAX_BANDS of Linux.
pub(super) const CLASSES_MAX: usize = 16;

/// The parameter of every discipline that sorts packets by class.
pub(super) const CLASSES: DescribedParam = DescribedParam {
    name: "classes",
    summary: "rules that give packets a class; the first match wins, else the last class",
    default: None,
    allowed: "a list of rules such as [{ dscp = 46, class = 0 }]",
};

/// More rules than anyone writes by hand; each costs a comparison a packet.
const RULES_MAX: usize = 1000;

/// IANA protocol numbers by name.
const PROTOCOLS: &[(&str, u8)] =
    &[("icmp", 1), ("tcp", 6), ("udp", 17), ("gre", 47), ("esp", 50), ("icmpv6", 58)];
/// Allowed values of `protocol`, for error texts.
const PROTOCOL_ALLOWED: &str = "icmp, tcp, udp, gre, esp, icmpv6 or a number, 0 to 255";
/// Allowed values of the port conditions, for error texts.
const PORT_ALLOWED: &str = "a port or a range such as \"5000-6000\", 1 to 65535";
/// Allowed values of the address conditions, for error texts.
const PREFIX_ALLOWED: &str = "a prefix such as \"10.0.0.0/8\", without host bits, or an address";

const fn condition(
    name: &'static str,
    summary: &'static str,
    allowed: &'static str,
) -> DescribedParam {
    DescribedParam { name, summary, default: None, allowed }
}

/// The conditions of a rule.
pub const RULE: &[&dyn Parameter] = &[
    &condition("dscp", "the DSCP equals", "a whole number, 0 to 63"),
    &condition("protocol", "the IP protocol equals", PROTOCOL_ALLOWED),
    &condition("port", "the source or the destination port lies in", PORT_ALLOWED),
    &condition("source_port", "the source port lies in", PORT_ALLOWED),
    &condition("destination_port", "the destination port lies in", PORT_ALLOWED),
    &condition("prefix", "the source or the destination address lies in", PREFIX_ALLOWED),
    &condition("source_prefix", "the source address lies in", PREFIX_ALLOWED),
    &condition("destination_prefix", "the destination address lies in", PREFIX_ALLOWED),
    &condition("class", "the class", "the number of a band or of a weight, from 0 on"),
];

/// Gives packets their class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classifier {
    rules: Vec<Rule>,
    /// Of packets that no rule matches.
    default_class: u8,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    dscp: Option<u8>,
    protocol: Option<u8>,
    port: Option<RangeInclusive<u16>>,
    source_port: Option<RangeInclusive<u16>>,
    destination_port: Option<RangeInclusive<u16>>,
    prefix: Option<IpNet>,
    source_prefix: Option<IpNet>,
    destination_prefix: Option<IpNet>,
    class: u8,
}

impl Classifier {
    /// The rules of the discipline in `spec` that sorts packets by class, at any depth. Without such a discipline,
    /// every packet is of class 0.
    pub fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        if !sorts(spec) {
            return match spec.nested("inner")? {
                Some(inner) => Self::from_spec(&inner).map_err(|error| error.within("inner")),
                None => Ok(Self::default()),
            };
        }
        let classes = if takes(spec, BANDS.name) {
            given(spec, BANDS.name, spec.nested_list(BANDS.name))?.len().clamp(1, CLASSES_MAX)
        } else {
            WEIGHTS.of(spec)?.classes()
        };
        let tables = spec.tables("classes")?.unwrap_or_default();
        if tables.len() > RULES_MAX {
            let value = format!("{} rules", tables.len());
            return Err(SpecError::new("classes", &value, &format!("at most {RULES_MAX} rules")));
        }
        let read = |(index, table): (usize, &&BTreeMap<String, Value>)| {
            let rule = Spec { kind: "a class rule".into(), params: (*table).clone() };
            Rule::from_spec(&rule, classes)
                .map_err(|error| error.within(&format!("classes[{index}]")))
        };
        let rules = tables.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { rules, default_class: (classes - 1) as u8 })
    }

    /// The class of a packet with these headers.
    pub fn classify(&self, headers: &Headers) -> u8 {
        let rule = self.rules.iter().find(|rule| rule.matches(headers));
        rule.map_or(self.default_class, |rule| rule.class)
    }

    /// Refuses conditions on addresses and ports, for a host that sends packets with neither.
    pub fn check_without_ends(&self) -> Result<(), SpecError> {
        let allowed = "dscp and protocol: packets here have neither addresses nor ports";
        for (index, rule) in self.rules.iter().enumerate() {
            if let Some((key, value)) = rule.of_ends() {
                let error = SpecError::new(key, &value, allowed);
                return Err(error.within(&format!("classes[{index}]")));
            }
        }
        Ok(())
    }
}

/// Whether `spec`, apart from its inner disciplines, sorts packets by class.
fn sorts(spec: &Spec) -> bool {
    let is_asked = [BANDS.name, CLASSES.name].iter().any(|name| spec.params.contains_key(*name));
    is_asked && takes(spec, CLASSES.name)
}

/// Whether `spec` or its inner discipline sorts packets by class.
pub(super) fn has_classes(spec: &Spec) -> bool {
    let inner = || spec.nested("inner").ok().flatten();
    sorts(spec) || inner().is_some_and(|inner| has_classes(&inner))
}

impl Rule {
    fn from_spec(spec: &Spec, classes: usize) -> Result<Self, SpecError> {
        spec.check_names(RULE)?;
        let class = small(spec, "class", classes as u64 - 1)?.ok_or_else(|| {
            SpecError::new("class", "(absent)", &format!("a class, 0 to {}", classes - 1))
        })?;
        Ok(Self {
            dscp: small(spec, "dscp", 63)?,
            protocol: protocol(spec)?,
            port: ports(spec, "port")?,
            source_port: ports(spec, "source_port")?,
            destination_port: ports(spec, "destination_port")?,
            prefix: prefix(spec, "prefix")?,
            source_prefix: prefix(spec, "source_prefix")?,
            destination_prefix: prefix(spec, "destination_prefix")?,
            class,
        })
    }

    /// The first condition on a port or an address: its name and its value.
    fn of_ends(&self) -> Option<(&'static str, String)> {
        let ports = [
            ("port", &self.port),
            ("source_port", &self.source_port),
            ("destination_port", &self.destination_port),
        ];
        let prefixes = [
            ("prefix", &self.prefix),
            ("source_prefix", &self.source_prefix),
            ("destination_prefix", &self.destination_prefix),
        ];
        let of_port = |(key, range): (&'static str, &Option<RangeInclusive<u16>>)| {
            let (first, last) = range.as_ref()?.clone().into_inner();
            let is_one = first == last;
            Some((key, if is_one { first.to_string() } else { format!("{first}-{last}") }))
        };
        let of_prefix =
            |(key, net): (&'static str, &Option<IpNet>)| Some((key, net.as_ref()?.to_string()));
        ports.into_iter().find_map(of_port).or_else(|| prefixes.into_iter().find_map(of_prefix))
    }

    fn matches(&self, headers: &Headers) -> bool {
        let within = |ports: &Option<RangeInclusive<u16>>, candidates: &[u16]| {
            ports.as_ref().is_none_or(|range| candidates.iter().any(|port| range.contains(port)))
        };
        let inside = |prefix: &Option<IpNet>, candidates: &[IpAddr]| {
            prefix.as_ref().is_none_or(|net| candidates.iter().any(|address| net.contains(address)))
        };
        let (source, destination) = (headers.source, headers.destination);
        self.dscp.is_none_or(|dscp| dscp == headers.dscp)
            && self.protocol.is_none_or(|protocol| protocol == headers.protocol)
            && within(&self.port, &[headers.source_port, headers.destination_port])
            && within(&self.source_port, &[headers.source_port])
            && within(&self.destination_port, &[headers.destination_port])
            && inside(&self.prefix, &[source, destination])
            && inside(&self.source_prefix, &[source])
            && inside(&self.destination_prefix, &[destination])
    }
}

/// A whole number up to `max`, which is below 256.
fn small(spec: &Spec, name: &'static str, max: u64) -> Result<Option<u8>, SpecError> {
    match spec.value::<u64>(name)? {
        Some(value) if value > max => {
            Err(SpecError::new(name, &value.to_string(), &format!("a whole number, 0 to {max}")))
        }
        found => Ok(found.map(|value| value as u8)),
    }
}

/// The value `name` as text without quotes, read by `read`.
fn read<T>(
    spec: &Spec,
    name: &str,
    allowed: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, SpecError> {
    let Some(value) = spec.params.get(name) else { return Ok(None) };
    let text = match value {
        Value::Text(text) => text.clone(),
        other => other.to_string(),
    };
    let refused = || SpecError::new(name, &value.to_string(), allowed);
    read(&text).ok_or_else(refused).map(Some)
}

fn protocol(spec: &Spec) -> Result<Option<u8>, SpecError> {
    read(spec, "protocol", PROTOCOL_ALLOWED, |text| {
        let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
        named.map(|(_, number)| *number).or_else(|| text.parse().ok())
    })
}

fn ports(spec: &Spec, name: &str) -> Result<Option<RangeInclusive<u16>>, SpecError> {
    read(spec, name, PORT_ALLOWED, |text| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // Port 0 stands for "has no port" in the headers.
        (1 <= first && first <= last).then_some(first..=last)
    })
}

fn prefix(spec: &Spec, name: &str) -> Result<Option<IpNet>, SpecError> {
    read(spec, name, PREFIX_ALLOWED, |text| {
        let net = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse::<IpNet>().ok()?,
        };
        (net.trunc() == net).then_some(net)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;

    fn headers() -> Headers {
        Headers {
            source: [10, 1, 2, 3].into(),
            destination: [192, 0, 2, 7].into(),
            protocol: 6,
            source_port: 5001,
            destination_port: 443,
            dscp: 0,
            ecn: Ecn::NotEct,
            tags_len: 0,
            payload_at: 34,
            payload_len: 20,
        }
    }

    fn rule(conditions: &[(&str, Value)], class: i64) -> Value {
        let mut table: BTreeMap<String, Value> =
            conditions.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        table.insert("class".into(), Value::Integer(class));
        Value::Table(table)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn classifier(rules: Vec<Value>) -> Result<Classifier, SpecError> {
        let bands = ["fifo", "fifo", "fifo"].map(text).to_vec();
        let spec = Spec::named("prio")
            .with("bands", Value::List(bands))
            .with("classes", Value::List(rules));
        Classifier::from_spec(&spec)
    }

    #[test]
    fn each_condition_matches_its_field_only() {
        for (key, value, matches) in [
            ("dscp", Value::Integer(0), true),
            ("dscp", Value::Integer(46), false),
            ("protocol", text("tcp"), true),
            ("protocol", Value::Integer(17), false),
            ("port", text("5000-6000"), true),
            ("port", Value::Integer(443), true),
            ("source_port", Value::Integer(443), false),
            ("destination_port", text("443"), true),
            ("prefix", text("192.0.2.0/24"), true),
            ("source_prefix", text("192.0.2.0/24"), false),
            ("source_prefix", text("10.0.0.0/8"), true),
            ("destination_prefix", text("192.0.2.7"), true),
            ("prefix", text("2001:db8::/32"), false),
        ] {
            let classifier = classifier(alloc::vec![rule(&[(key, value.clone())], 1)]).unwrap();
            let class = classifier.classify(&headers());
            assert_eq!(class, if matches { 1 } else { 2 }, "{key} = {value}");
        }
    }

    #[test]
    fn the_first_rule_whose_conditions_all_hold_wins() {
        let rules = alloc::vec![
            rule(&[("protocol", text("udp")), ("port", Value::Integer(443))], 0),
            rule(&[("protocol", text("tcp")), ("port", Value::Integer(443))], 1),
            rule(&[], 0),
        ];
        let classifier = classifier(rules).unwrap();
        assert_eq!(classifier.classify(&headers()), 1);
        assert_eq!(classifier.classify(&Headers { protocol: 50, ..headers() }), 0);
    }

    #[test]
    fn a_packet_without_ports_matches_no_port() {
        let classifier = classifier(alloc::vec![rule(&[("port", text("1-65535"))], 0)]).unwrap();
        let fragment = Headers { source_port: 0, destination_port: 0, ..headers() };
        assert_eq!(classifier.classify(&fragment), 2);
    }

    #[test]
    fn rules_of_every_classful_discipline_are_found() {
        let bands = Value::List(["sfq", "fifo"].map(text).to_vec());
        let weights = Value::List([4, 1].map(Value::Integer).to_vec());
        for (kind, name, classes) in [
            ("prio", "bands", &bands),
            ("ets", "bands", &bands),
            ("sfq", "weights", &weights),
            ("drr", "weights", &weights),
        ] {
            let rules = alloc::vec![rule(&[("dscp", Value::Integer(46))], 0)];
            let sorting = Spec::named(kind).with(name, classes.clone());
            let sorting = sorting.with("classes", Value::List(rules));
            let spec = Spec::named("shaper").with("inner", Value::Spec(sorting));
            let classifier = Classifier::from_spec(&spec).unwrap();
            assert_eq!(classifier.classify(&Headers { dscp: 46, ..headers() }), 0, "{kind}");
            assert_eq!(classifier.classify(&headers()), 1, "{kind}");
        }
        assert_eq!(Classifier::from_spec(&Spec::named("sfq")).unwrap().classify(&headers()), 0);
    }

    #[test]
    fn without_rules_packets_get_the_last_class() {
        let bands = Value::List(["sfq", "fifo", "fifo"].map(text).to_vec());
        for kind in ["prio", "ets"] {
            let spec = Spec::named(kind).with("bands", bands.clone());
            assert_eq!(Classifier::from_spec(&spec).unwrap().classify(&headers()), 2, "{kind}");
        }
    }

    #[test]
    fn rules_without_classes_name_the_missing_parameter() {
        for (kind, lacks) in
            [("prio", "bands"), ("ets", "bands"), ("sfq", "weights"), ("drr", "weights")]
        {
            let rules = Value::List(alloc::vec![rule(&[], 0)]);
            let spec = Spec::named(kind).with("classes", rules);
            let error = Classifier::from_spec(&spec).unwrap_err();
            assert_eq!((error.key.as_str(), error.value.as_str()), (lacks, "(absent)"), "{kind}");
        }
    }

    #[test]
    fn host_without_addresses_refuses_rules_that_need_them() {
        let dscp = || rule(&[("dscp", Value::Integer(46)), ("protocol", text("udp"))], 0);
        let check = |condition, value| {
            let rules = alloc::vec![dscp(), rule(&[(condition, value)], 1)];
            classifier(rules).unwrap().check_without_ends().map_err(|error| error.to_string())
        };
        assert_eq!(check("dscp", Value::Integer(0)), Ok(()));
        for (condition, value, written) in [
            ("destination_port", Value::Integer(443), "443"),
            ("port", text("5000-6000"), "5000-6000"),
            ("source_prefix", text("10.0.0.0/8"), "10.0.0.0/8"),
        ] {
            let error = check(condition, value).unwrap_err();
            let expected =
                format!("classes[1].{condition} = {written}: allowed is dscp and protocol");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn bad_rules_are_refused_with_place_and_range() {
        for (key, value, expected) in [
            (
                "dscp",
                Value::Integer(64),
                "classes[0].dscp = 64: allowed is a whole number, 0 to 63",
            ),
            ("port", text("6000-5000"), "a port or a range"),
            ("port", Value::Integer(0), "a port or a range"),
            ("prefix", text("10.0.0.1/8"), "without host bits"),
            ("prefix", text("example.org"), "a prefix such as"),
            ("protocol", text("TCP"), "icmp, tcp, udp"),
            ("class", Value::Integer(3), "a whole number, 0 to 2"),
            ("class", Value::Integer(-1), "a whole number"),
            ("dcsp", Value::Integer(1), "one of dscp, protocol"),
        ] {
            let mut broken = rule(&[], 0);
            if let Value::Table(table) = &mut broken {
                table.insert(key.into(), value.clone());
            }
            let error = classifier(alloc::vec![broken]).unwrap_err().to_string();
            assert!(error.contains(expected), "{key} = {value}: {error}");
        }
        let error = classifier(alloc::vec![Value::Table(BTreeMap::new())]).unwrap_err();
        assert_eq!(error.key, "classes[0].class");
    }
}
