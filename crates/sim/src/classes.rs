//! Packet classes: each queue's rules are applied to each flow before the run.
//!
//! Rules look at headers, and the headers of a flow stay the same. So a packet gets its class from a table on
//! its way to a queue with rules. Other queues need no look-up. Packets here have a protocol and a DSCP;
//! rules about addresses and ports are refused.

use std::net::{IpAddr, Ipv4Addr};

use forebay_core::bundle::wire::MESSAGE_DSCP;
use forebay_core::packet::{Ecn, Headers};
use forebay_core::qdisc::Classifier;
use forebay_core::spec::{Spec, SpecError};
use forebay_core::traffic::Source;

use crate::network::{Network, Traffic};
use crate::packet::Packet;
use crate::packet_log::Owner;

/// IANA protocol number of TCP.
const TCP: u8 = 6;
/// IANA protocol number of UDP.
const UDP: u8 = 17;

/// Changes to packets on their way to one queue that has classes, or whose link clears the ECN field.
#[derive(Debug)]
pub(crate) struct Classes {
    /// Class of each flow of the network.
    of_flows: Vec<u8>,
    of_messages: u8,
    clears_ecn: bool,
}

impl Classes {
    /// The classes that `qdisc` gives the flows of `network`. `None` if the qdisc has no rules and the link
    /// changes no packet.
    pub fn new(
        qdisc: &Spec,
        clears_ecn: bool,
        network: &Network,
    ) -> Result<Option<Self>, SpecError> {
        let classifier = Classifier::from_spec(qdisc)?;
        if classifier == Classifier::default() && !clears_ecn {
            return Ok(None);
        }
        classifier.check_without_ends()?;
        let class = |protocol, dscp| classifier.classify(&headers(protocol, dscp));
        let of_flows = network.flows.iter().map(|flow| class(protocol(&flow.traffic), flow.dscp));
        let (of_flows, of_messages) = (of_flows.collect(), class(UDP, MESSAGE_DSCP));
        Ok(Some(Self { of_flows, of_messages, clears_ecn }))
    }

    /// `packet` of `owner` as the queue receives it.
    pub fn prepare(&self, owner: Owner, packet: Packet) -> Packet {
        let class = match owner {
            Owner::Flow(flow) => self.of_flows[flow],
            Owner::Bundle(_) => self.of_messages,
        };
        let packet = packet.with_class(class);
        if self.clears_ecn { packet.with_marks(packet.marks().without_ecn()) } else { packet }
    }
}

fn protocol(traffic: &Traffic) -> u8 {
    match traffic {
        Traffic::Source(Source::Greedy { .. }) | Traffic::Written | Traffic::Messages(_) => TCP,
        Traffic::Source(_) | Traffic::Ping => UDP,
    }
}

/// Headers with a protocol and a DSCP, the only fields that rules here may use.
fn headers(protocol: u8, dscp: u8) -> Headers {
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Headers {
        source: nowhere,
        destination: nowhere,
        protocol,
        source_port: 0,
        destination_port: 0,
        dscp,
        ecn: Ecn::NotEct,
        tags_len: 0,
        payload_at: 0,
        payload_len: 0,
    }
}
