//! Checks that the receivebox of a bundle answers, on behalf of the sendbox.
//!
//! Sends a challenge (`forebay_core::bundle::wire`), sealed with the bundle's key, from the sendbox's own address
//! until one is answered. No session begins: the challenge of the receivebox stays unanswered.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use forebay_core::bundle::BundleId;
use forebay_core::bundle::keys::{Direction, KeyRing, MessageKey};
use forebay_core::bundle::wire::{Header, MAX_DATAGRAM, Message, Sealed};

use super::ProbeError;
use crate::daemon::unguessable;

/// Number of challenges.
const ATTEMPTS: u64 = 5;
/// Time to wait for the answer to each challenge.
const ATTEMPT_WAIT: Duration = Duration::from_millis(500);

/// Result of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An answer came, after this time.
    Answer(Duration),
    /// No answer came: no receivebox runs there, its key differs, or a firewall blocks.
    Nothing,
    /// A running sendbox uses the address: ask it instead.
    SendboxRuns,
}

/// Asks the receivebox at `peer` about `bundle`, from the sendbox's own address `listen`.
///
/// # Errors
///
/// If the address does not belong to this machine, or the system refuses the socket.
pub fn ask(
    listen: SocketAddr,
    peer: SocketAddr,
    bundle: BundleId,
    keys: &KeyRing,
) -> Result<Heard, ProbeError> {
    let socket = match UdpSocket::bind(listen) {
        Ok(socket) => socket,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(Heard::SendboxRuns),
        Err(source) => return Err(ProbeError::Listen { address: listen, source }),
    };
    socket.connect(peer).map_err(|source| ProbeError::Connect { address: peer, source })?;
    let own = keys.current().message_key(bundle, Direction::ToReceivebox);
    let theirs: Vec<MessageKey> =
        keys.keys().map(|key| key.message_key(bundle, Direction::ToSendbox)).collect();
    let (session, mut challenge) = (unguessable(), Vec::new());
    for sequence in 1..=ATTEMPTS {
        let nonce = unguessable();
        Message::Challenge { nonce }.seal(
            Header { bundle, session, sequence },
            &own,
            &mut challenge,
        );
        let asked = Instant::now();
        // The error may be about an earlier datagram; try the next attempt.
        if socket.send(&challenge).is_err() {
            continue;
        }
        while let Some(left) = ATTEMPT_WAIT.checked_sub(asked.elapsed()).filter(|it| !it.is_zero())
        {
            socket.set_read_timeout(Some(left)).map_err(ProbeError::os("SO_RCVTIMEO"))?;
            let mut datagram = [0; MAX_DATAGRAM + 1];
            let Ok(len) = socket.recv(&mut datagram) else { break };
            if is_answer(&datagram[..len], bundle, &theirs, nonce, session) {
                return Ok(Heard::Answer(asked.elapsed()));
            }
        }
    }
    Ok(Heard::Nothing)
}

fn is_answer(
    datagram: &[u8],
    bundle: BundleId,
    keys: &[MessageKey],
    asked: u64,
    own_session: u64,
) -> bool {
    let opened = Sealed::parse(datagram).ok().filter(|sealed| sealed.bundle() == bundle);
    let message = opened.and_then(|sealed| Some(sealed.open(keys).ok()?.1));
    matches!(message, Some(Message::Response { nonce, session, .. })
        if nonce == asked && session == own_session)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUNDLE: BundleId = BundleId(1);

    fn keys(digit: char) -> KeyRing {
        KeyRing::parse(&String::from(digit).repeat(64)).unwrap()
    }

    /// Asks a receivebox that answers challenges of `keys`, from a sendbox that has the key of ones.
    fn heard(keys: &KeyRing) -> Heard {
        let peer = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let address = peer.local_addr().unwrap();
        let current = keys.current();
        let theirs = [current.message_key(BUNDLE, Direction::ToReceivebox)];
        let own = current.message_key(BUNDLE, Direction::ToSendbox);
        std::thread::spawn(move || {
            let mut datagram = [0; MAX_DATAGRAM];
            while let Ok((len, from)) = peer.recv_from(&mut datagram) {
                let sealed = Sealed::parse(&datagram[..len]).unwrap();
                let Ok((header, Message::Challenge { nonce }, _)) = sealed.open(&theirs) else {
                    continue;
                };
                let challenge = Some(7);
                let answer = Message::Response { nonce, session: header.session, challenge };
                let mut out = Vec::new();
                answer.seal(Header { session: 9, sequence: 1, ..header }, &own, &mut out);
                peer.send_to(&out, from).unwrap();
            }
        });
        ask(SocketAddr::from(([127, 0, 0, 1], 0)), address, BUNDLE, &self::keys('1')).unwrap()
    }

    #[test]
    fn receivebox_answers_only_holders_of_its_key() {
        assert!(matches!(heard(&keys('1')), Heard::Answer(_)));
        assert_eq!(heard(&keys('2')), Heard::Nothing);
    }

    #[test]
    fn probe_detects_a_running_sendbox() {
        let sendbox = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let listen = sendbox.local_addr().unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(ask(listen, peer, BUNDLE, &keys('1')).unwrap(), Heard::SendboxRuns);
    }
}
