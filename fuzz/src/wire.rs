//! Any datagram is refused or understood, also one with a right tag or of several messages. Understood messages are
//! written back the same.

use forebay_core::bundle::BundleId;
use forebay_core::bundle::keys::{Direction, KeyRing, PresharedKey};
use forebay_core::bundle::receivebox::Receivebox;
use forebay_core::bundle::scope::Scope;
use forebay_core::bundle::sendbox::{SUPPLIED, Sendbox, SendboxConfig};
use forebay_core::bundle::wire::{MAX_DATAGRAM, Sealed, may_share, split};
use forebay_core::cc;
use forebay_core::spec::Spec;
use forebay_core::units::Timestamp;

/// Type of a probe.
const PROBE: u8 = 8;

/// The bytes are datagrams without their tags, each after its length (two bytes, little-endian).
pub fn run(mut bytes: &[u8]) {
    let key = PresharedKey::new([1; 32]);
    let ring = KeyRing::new(key.clone(), None);
    let now = Timestamp::from_nanos(1);
    let mut drawn = 0;
    let mut draw = move || {
        drawn += 1;
        drawn
    };
    let cc = cc::build(&Spec::named("copa"), SUPPLIED).expect("it needs no more than its name");
    let config = SendboxConfig::default();
    let mut sendbox = Sendbox::new(config, cc, BundleId(1), &ring, [1, 2], now);
    let mut receivebox = Receivebox::new(BundleId(1), &ring, 3, 4, now);
    let prefix = |text: &str| text.parse().expect("a prefix");
    let [to, from] = ["10.1.2.0/23", "10.1.1.0/24"].map(|text| [prefix(text)]);
    sendbox.set_scope(now, Scope::new(to, [], [], []));
    receivebox.set_scope(now, Scope::new(to, from, [], []));
    sendbox.offer_rest(now);
    receivebox.offer_rest(now);
    sendbox.offer_counting(now);
    receivebox.offer_counting(now);
    sendbox.look_for_mtu(now, 1500, false);
    receivebox.offer_probes(now);
    let mut out = Vec::new();
    while let Some((&len, rest)) = bytes.split_first_chunk() {
        let (body, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(len).into()));
        bytes = rest;
        // Unchanged: without the key no datagram passes the check of the tag.
        assert!(sendbox.on_datagram(now, body, &mut draw).is_err());
        assert!(receivebox.on_datagram(now, body, &mut draw).is_err());
        for direction in [Direction::ToSendbox, Direction::ToReceivebox] {
            let key = key.message_key(BundleId(1), direction);
            let mut datagram = body.to_vec();
            datagram.extend_from_slice(&key.tag(body));
            if let [.., low, high] = *body
                && body.get(5) == Some(&PROBE)
            {
                // A probe has bytes after its tag, up to the length in its last two bytes.
                let len = usize::from(u16::from_le_bytes([low, high]));
                datagram.resize(datagram.len().max(len), 0);
            }
            check_split(&datagram);
            let opened =
                Sealed::parse(&datagram).and_then(|it| it.open(std::slice::from_ref(&key)));
            if let Ok((header, message, _)) = opened {
                message.seal(header, &key, &mut out);
                assert_eq!(out, datagram);
            }
            let _ = match direction {
                Direction::ToSendbox => sendbox.on_datagram(now, &datagram, &mut draw),
                Direction::ToReceivebox => receivebox.on_datagram(now, &datagram, &mut draw),
            };
        }
        assert!(sendbox.differences().is_none_or(|found| found.len() <= 6));
        while sendbox.poll(now, &mut out) {}
        while receivebox.poll(now, &mut out) {}
    }
}

/// Messages that share a datagram make up all of it, in order. Each one that may share can be split off.
fn check_split(datagram: &[u8]) {
    let (mut rest, mut messages) = (datagram, Vec::new());
    loop {
        let (message, others) = split(rest);
        messages.push(message);
        if others.is_empty() {
            break;
        }
        rest = others;
    }
    assert_eq!(messages.concat(), datagram);
    assert!(messages.len() == 1 || datagram.len() <= MAX_DATAGRAM);
    assert!(messages.iter().all(|message| !may_share(message) || split(message).1.is_empty()));
}
