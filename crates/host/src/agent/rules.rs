//! Chooses the algorithm of a connection.
//!
//! An agent offers some algorithms, each under its own name, which a connection selects (`fb_copa`). A
//! rule overrules that choice for the connections to some destination:
//!
//! ```text
//! --rule '10.0.0.0/8=copa(flow=true)'      --rule '[2001:db8::/32]:443=bbr'      --rule ':80=newreno'
//! ```
//! The first rule that fits applies. If none fits, the connection gets the algorithm whose name it
//! selected.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use forebay_core::cc::{Algorithm, CongestionControl, Field, Registry};
use forebay_core::spec::{Spec, SpecError};
use ipnet::IpNet;

use crate::prefix;

/// Fields of a measurement that the kernel's reports supply to an algorithm.
pub const SUPPLIED: &[Field] =
    &[Field::Lost, Field::EcnCe, Field::Rtt, Field::SendRate, Field::DeliveryRate, Field::InFlight];

pub use forebay_ebpf::tcp::NAME_MAX;

/// The name under which `algorithm` is registered with the kernel: `fb_` and its own name, cut to
/// [`NAME_MAX`] bytes.
pub fn kernel_name(algorithm: &str) -> String {
    let name: String = "fb_".chars().chain(algorithm.chars()).collect();
    name.chars().filter(char::is_ascii).take(NAME_MAX).collect()
}

/// An algorithm with its parameters, checked: it can be built from the kernel's reports. Every
/// connection has a copy of the pointer, one word.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice(Arc<Offer>);

/// An offered algorithm, and its name in the kernel.
#[derive(Debug)]
struct Offer {
    algorithm: Algorithm,
    spec: Spec,
    name: String,
}

impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        (&self.spec, &self.name) == (&other.spec, &other.name)
    }
}

impl Choice {
    /// Checks `spec`, which names one of `algorithms`. An algorithm for aggregates as well is set to a
    /// single flow, unless `spec` says otherwise.
    pub fn new(algorithms: &Registry, spec: Spec) -> Result<Self, SpecError> {
        let spec = algorithms.of_single_flow(spec);
        let algorithm = *algorithms.fit(&spec, SUPPLIED)?;
        algorithm.build(&spec)?;
        Ok(Self(Arc::new(Offer { algorithm, name: kernel_name(&spec.kind), spec })))
    }

    /// Renames this choice in the kernel; `name` has 1 to [`NAME_MAX`] bytes of letters, digits, `_` and
    /// `-`.
    pub fn named(self, name: &str) -> Result<Self, SpecError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_plain) {
            let allowed = "1 to 15 letters, digits, `_` or `-`";
            return Err(SpecError::new("name", name, allowed));
        }
        let Offer { algorithm, ref spec, .. } = *self.0;
        Ok(Self(Arc::new(Offer { algorithm, name: name.into(), spec: spec.clone() })))
    }

    /// Reads an offer of one of `algorithms`: `copa` under its own name, `mine=copa` under another.
    pub fn offered(algorithms: &Registry, text: &str) -> Result<Self, SpecError> {
        // Parameters contain `=` as well.
        match text.split_once('=').filter(|(name, _)| !name.contains('(')) {
            Some((name, algorithm)) => {
                Self::new(algorithms, algorithm.parse()?)?.named(name.trim())
            }
            None => Self::new(algorithms, text.parse()?),
        }
    }

    /// Whether the algorithm needs ECN marks, so that its connections must negotiate ECN.
    pub fn needs_marks(&self) -> bool {
        self.0.algorithm.needs.contains(&Field::EcnCe)
    }

    /// The checked specification.
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    /// The name under which it is registered with the kernel.
    pub fn kernel_name(&self) -> String {
        self.0.name.clone()
    }

    /// A fresh instance.
    pub fn build(&self) -> Box<dyn CongestionControl> {
        self.0.algorithm.build(&self.0.spec).expect("it was built once, when it was checked")
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.spec.fmt(f)
    }
}

impl FromStr for Choice {
    type Err = SpecError;
    /// Reads one of [`Registry::BUILTIN`].
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::new(&Registry::BUILTIN, text.parse()?)
    }
}

/// Connections to some destination get this algorithm.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Prefix of the destination; `None`: any.
    pub prefix: Option<IpNet>,
    /// Port of the destination; `None`: any.
    pub port: Option<u16>,
    /// The algorithm for these connections.
    pub choice: Choice,
}

/// Error for a text that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The part before `=` is wrong.
    #[error(
        "{0:?}: a rule begins with PREFIX=, :PORT= or PREFIX:PORT=, such as 10.0.0.0/8:443= or \
         [2001:db8::/32]:443="
    )]
    Destination(String),
    /// The part after `=` is wrong.
    #[error("{0}")]
    Algorithm(#[from] SpecError),
}

impl Rule {
    /// Whether the rule applies to connections to `destination`.
    pub fn covers(&self, destination: SocketAddr) -> bool {
        // A socket of IPv6 may carry IPv4; on the wire, and in a rule, that is IPv4.
        let address = destination.ip().to_canonical();
        self.prefix.is_none_or(|prefix| prefix.contains(&address))
            && self.port.is_none_or(|port| port == destination.port())
    }

    /// Reads a rule that assigns one of `algorithms`.
    pub fn read(algorithms: &Registry, text: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError::Destination(text.to_string());
        let (destination, algorithm) = text.split_once('=').ok_or_else(wrong)?;
        let (prefix, port) = split_port(destination.trim()).ok_or_else(wrong)?;
        let prefix = match prefix {
            "" => None,
            text => Some(parse_prefix(text).ok_or_else(wrong)?),
        };
        let port = port.map(|port| port.parse().map_err(|_| wrong())).transpose()?;
        if prefix.is_none() && port.is_none() {
            return Err(wrong());
        }
        let choice = Choice::new(algorithms, algorithm.trim().parse()?)?;
        Ok(Self { prefix, port, choice })
    }
}

impl FromStr for Rule {
    type Err = RuleError;
    /// Reads a rule with one of [`Registry::BUILTIN`].
    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::read(&Registry::BUILTIN, text)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.prefix, self.port) {
            (Some(prefix @ IpNet::V6(_)), Some(_)) => write!(f, "[{prefix}]")?,
            (Some(prefix), _) => prefix.fmt(f)?,
            (None, _) => {}
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "={}", self.choice)
    }
}

/// The prefix and the port of `10.0.0.0/8:443`, `[2001:db8::/32]:443`, `:443` or a prefix alone.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (prefix, rest) = rest.split_once(']')?;
        return match rest {
            "" => Some((prefix, None)),
            rest => Some((prefix, Some(rest.strip_prefix(':')?))),
        };
    }
    match text.split_once(':') {
        // More than one colon: IPv6 without brackets.
        Some((_, rest)) if rest.contains(':') => Some((text, None)),
        Some((prefix, port)) => Some((prefix, Some(port))),
        None => Some((text, None)),
    }
}

fn parse_prefix(text: &str) -> Option<IpNet> {
    let net = prefix::parse(text);
    net.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from)).map(|net| net.trunc())
}

/// The algorithms that an agent offers, and the rules that assign others.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    choices: Vec<Choice>,
    rules: Vec<Rule>,
}

impl Rules {
    /// Offers `choices`; the first one is the default.
    ///
    /// # Errors
    ///
    /// Returns a text if `choices` is empty, or if two choices have the same name in the kernel.
    pub fn new(choices: Vec<Choice>, rules: Vec<Rule>) -> Result<Self, String> {
        if choices.is_empty() {
            return Err("no algorithm".into());
        }
        for (index, choice) in choices.iter().enumerate() {
            let name = choice.kernel_name();
            if choices[..index].iter().any(|other| other.kernel_name() == name) {
                return Err(format!(
                    "two algorithms would have the name {name}: give one another name \
                     (mine=ALGORITHM), or set other parameters by a rule"
                ));
            }
        }
        Ok(Self { choices, rules })
    }

    /// The algorithms that can be selected by name.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// The rules, in the order in which they are tried.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The algorithm for a connection to `destination` that has selected choice number `selected`.
    pub fn choose(&self, destination: SocketAddr, selected: usize) -> &Choice {
        let rule = self.rules.iter().find(|rule| rule.covers(destination));
        let selected = || self.choices.get(selected).unwrap_or(&self.choices[0]);
        rule.map_or_else(selected, |rule| &rule.choice)
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::cc::ALGORITHMS;

    use super::*;

    fn rules(choices: &[&str], rules: &[&str]) -> Rules {
        let choices = choices.iter().map(|text| text.parse().unwrap()).collect();
        Rules::new(choices, rules.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
    }

    #[test]
    fn only_ecn_dependent_algorithms_request_marks() {
        let asks = |text: &str| text.parse::<Choice>().unwrap().needs_marks();
        assert_eq!(["dctcp", "cubic", "bbr"].map(asks), [true, false, false]);
    }

    #[test]
    fn kernel_names_are_unique_within_15_bytes() {
        let mut names: Vec<String> = ALGORITHMS.iter().map(|it| kernel_name(it.name)).collect();
        assert!(names.iter().all(|name| name.len() <= NAME_MAX && name.starts_with("fb_")));
        assert!(names.contains(&"fb_basic_delay".to_string()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ALGORITHMS.len());
    }

    #[test]
    fn first_matching_rule_wins_over_the_name() {
        let rules = rules(
            &["cubic", "copa"],
            &["10.1.0.0/16:443=bbr", ":80=newreno", "[2001:db8::/32]:443=vegas", "10.0.0.0/8=veno"],
        );
        for (to, selected, kind) in [
            ("10.1.2.3:443", 0, "bbr"),
            ("10.1.2.3:80", 0, "newreno"),
            ("10.1.2.3:22", 1, "veno"),
            ("[2001:db8::1]:443", 0, "vegas"),
            ("[::ffff:10.1.2.3]:443", 0, "bbr"),
            ("192.0.2.1:443", 0, "cubic"),
            ("192.0.2.1:443", 1, "copa"),
            ("192.0.2.1:443", 7, "cubic"),
        ] {
            let choice = rules.choose(to.parse().unwrap(), selected);
            assert_eq!(choice.spec().kind, kind, "{to}");
        }
    }

    #[test]
    fn rules_are_printed_as_they_are_read() {
        for text in [
            "10.0.0.0/8=cubic(hystart=off)",
            ":443=bbr",
            "[2001:db8::/32]:443=newreno",
            "192.0.2.7/32:80=cubic",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        let host: Rule = "2001:db8::7=cubic".parse().unwrap();
        assert_eq!(host.prefix.unwrap().prefix_len(), 128);
    }

    #[test]
    fn invalid_rules_are_refused_with_their_part() {
        for text in ["cubic", "=cubic", "10.0.0.0/33=cubic", "10.0.0.0/8:x=cubic", "[::1=cubic"] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(matches!(error, RuleError::Destination(_)), "{text}");
        }
        let error = ":443=cubic(hystart=3)".parse::<Rule>().unwrap_err();
        assert!(error.to_string().starts_with("hystart = "), "{error}");
        assert!(":443=nonesuch".parse::<Rule>().is_err());
    }

    #[test]
    fn aggregate_algorithms_learn_that_this_is_one_flow() {
        let flow =
            |text: &str| text.parse::<Choice>().unwrap().spec().value::<bool>("flow").unwrap();
        assert_eq!(flow("copa"), Some(true));
        assert_eq!(flow("copa(flow=false)"), Some(false));
        assert_eq!(flow("cubic"), None);
    }

    #[test]
    fn algorithm_may_be_offered_under_another_name() {
        for (text, name, spec) in [
            ("cubic", "fb_cubic", "cubic"),
            ("cubic(hystart=off)", "fb_cubic", "cubic(hystart=off)"),
            ("mine=cubic", "mine", "cubic"),
            ("no-hystart_1 = cubic(hystart=off)", "no-hystart_1", "cubic(hystart=off)"),
        ] {
            let choice = Choice::offered(&Registry::BUILTIN, text).unwrap();
            assert_eq!((choice.kernel_name().as_str(), choice.to_string().as_str()), (name, spec));
        }
        for text in ["=cubic", "sixteen_letters_=cubic", "a b=cubic", "mine=nonesuch"] {
            assert!(Choice::offered(&Registry::BUILTIN, text).is_err(), "{text}");
        }
        let both = ["cubic", "plain=cubic(hystart=off)"]
            .map(|it| Choice::offered(&Registry::BUILTIN, it).unwrap());
        assert!(Rules::new(both.to_vec(), vec![]).is_ok());
    }

    #[test]
    fn two_algorithms_of_one_name_are_refused() {
        let choices = || vec!["cubic".parse().unwrap(), "cubic(hystart=off)".parse().unwrap()];
        assert!(Rules::new(choices(), vec![]).unwrap_err().contains("fb_cubic"));
        assert!(Rules::new(vec![], vec![]).is_err());
    }
}
