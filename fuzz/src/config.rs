//! Any configuration file of a box is accepted whole or refused with its place.

use std::collections::BTreeSet;
use std::path::Path;

use forebay_core::bundle::uplink::Uplink;
use forebay_host::daemon::{Config, Role};

/// The bytes are a configuration file.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let file = Path::new("/etc/forebay/box.toml");
    match Config::parse_all(file, &text) {
        Ok(boxes) => {
            let names: BTreeSet<&String> = boxes.iter().map(|config| &config.name).collect();
            assert!(!names.is_empty() && names.len() == boxes.len());
            boxes.iter().for_each(check);
        }
        Err(error) => {
            let lines = text.lines().count().max(1) + 1;
            assert!(!error.problems.is_empty());
            for problem in &error.problems {
                assert!(problem.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
            }
            assert!(error.to_string().starts_with("/etc/forebay/box.toml:"), "{error}");
        }
    }
}

/// Conditions that the daemons rely on.
fn check(config: &Config) {
    let is_sendbox = config.role == Role::Sendbox;
    assert_eq!(config.lan.is_some(), is_sendbox);
    assert_ne!(config.lan.as_ref(), Some(&config.wan));
    assert!((1..=2).contains(&config.listen.len()));
    let ids: BTreeSet<_> = config.bundles.iter().map(|bundle| bundle.id).collect();
    assert!(!ids.is_empty() && ids.len() == config.bundles.len());
    if let Some(uplink) = &config.uplink {
        assert!(is_sendbox && uplink.groups.len() == uplink.shares.groups.len());
        assert_eq!(uplink.shares.bundles.len(), config.bundles.len());
        let shared = Uplink::new(&uplink.shares).expect("a configuration's shares fit");
        let rates = (0..config.bundles.len()).map(|bundle| shared.ceiling(bundle).rate);
        let sum: u64 = rates.map(|rate| rate.as_bits_per_sec()).sum();
        assert!(sum <= shared.rate().as_bits_per_sec());
    }
    for bundle in &config.bundles {
        assert_eq!(bundle.shaping.is_some(), is_sendbox);
        assert!(!bundle.to.is_empty() && (is_sendbox || !bundle.from.is_empty()));
        assert!(bundle.to.iter().chain(&bundle.from).all(|prefix| *prefix == prefix.trunc()));
        if let Some(shaping) = &bundle.shaping {
            assert!(
                shaping.max_rate.is_none_or(|max| shaping.min_rate.is_none_or(|min| max >= min))
            );
        }
    }
}
