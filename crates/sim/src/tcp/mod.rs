//! TCP, one mechanism a file. Sequence space counts segments; payload is never stored.
//!
//! | file | mechanism | source |
//! |---|---|---|
//! | `scoreboard` | outstanding, SACKed, lost and resent segments; the next one to send | RFC 6675 section 4 |
//! | `recovery` | duplicate acknowledgements, limited transmit, recovery, its end | RFC 6675 section 5, 3042, 6582 |
//! | `rack`, `scoreboard::by_time` | loss detection from send times | RFC 8985 section 6 |
//! | `tlp`, `sender::alarms` | tail loss probe, one timer for all | RFC 8985 sections 7 and 8 |
//! | `undo`, `sender::doubts` | undone reductions | RFC 3522, 3708, 4015 |
//! | `frto` | spurious timeouts | RFC 5682 |
//! | `dsack` | duplicates that the receiver reports | RFC 2883 |
//! | `prr` | amount to send in a recovery | RFC 6937, 9937 |
//! | `rto` | round-trip time and timeout | RFC 6298 |
//! | `delivery` | delivery-rate samples | draft-ietf-ccwg-bbr |
//! | `ecn` | marks, their echo and their answer | RFC 3168, 8257, 9331, 9768 |
//! | `validation` | unused windows | RFC 2861, 7661 |
//! | `receiver` | reassembly, SACK blocks | RFC 2018, 5681, 7323 |
//! | `claims` | false acknowledgements | Savage et al., CCR 1999 |
//! | `reading`, `sender::persist` | a window that closes, and its probes | RFC 9293, 3.8.6 |
//! | `delack` | delayed and quick acknowledgements | RFC 1122 |
//! | `peer` | packets of a short connection's receiving end | RFC 9293 |
//! | `stream` | written bytes, in segments | |
//! | `sender` | handshake, buffers, pacing; feeds the algorithm | RFC 9293, 6928 |
//! | `stack` | presets of the switches | |

mod claims;
mod delack;
mod delivery;
mod dsack;
pub(crate) mod ecn;
mod frto;
pub(crate) mod peer;
mod prr;
mod rack;
pub(crate) mod reading;
pub(crate) mod receiver;
mod recovery;
mod rto;
pub(crate) mod scoreboard;
pub(crate) mod sender;
pub(crate) mod stack;
mod stream;
mod tlp;
mod undo;
mod validation;
