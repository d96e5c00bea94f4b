//! The packets of a run and the points that they passed. They are kept until the run has ended, because each
//! frame's comment states the packet's fate.

use std::collections::HashMap;
use std::io::{self, Write};

use forebay_core::record::{Fate, PacketRecord};

use super::headers::{LinkLayer, set_ce};
use super::pcapng::{Frame, Pcapng, packet_bytes};
use super::points::{Points, of_link};

/// The packets captured so far.
pub struct Frames {
    link: LinkLayer,
    links: Vec<String>,
    points: Points,
    /// Most bytes of the capture.
    limit: u64,
    /// Bytes of the capture so far, less its comments.
    bytes: u64,
    /// Captured bytes of all packets, in sequence.
    captured: Vec<u8>,
    packets: Vec<Packet>,
    /// The packet of each identity.
    known: HashMap<u64, u32>,
    passages: Vec<Passage>,
    /// When a packet first found no room.
    full_at_ns: Option<u64>,
}

struct Packet {
    /// Start and length of the packet's captured bytes.
    start: usize,
    captured: u8,
    bytes: u32,
    /// The link that dropped or lost the packet, and why.
    ended: Option<(u16, Fate)>,
    /// The link whose queue marked the packet, and when the packet left the queue.
    marked: Option<(u16, u64)>,
    /// Further text about the packet.
    comment: Option<Box<str>>,
}

struct Passage {
    at_ns: u64,
    packet: u32,
    interface: u32,
}

/// Size of a finished capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Packets, counted once for each point that they passed; or events.
    pub entries: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// When the first entry was left out for lack of room (ns since the start of the run).
    pub full_at_ns: Option<u64>,
}

impl Frames {
    /// An empty capture of `links`; the link layer is `link`.
    pub fn new(link: LinkLayer, links: Vec<String>, points: Points, limit: u64) -> Self {
        Self {
            link,
            links,
            points,
            limit,
            bytes: 0,
            captured: Vec::new(),
            packets: Vec::new(),
            known: HashMap::new(),
            passages: Vec::new(),
            full_at_ns: None,
        }
    }

    /// The layer below IP.
    pub fn link(&self) -> LinkLayer {
        self.link
    }

    /// Number of the next packet.
    pub fn next(&self) -> u32 {
        self.packets.len() as u32
    }

    /// Whether there is no room left for a packet at `at_ns`.
    pub fn is_full(&mut self, at_ns: u64) -> bool {
        // Packets that pass no captured point take memory but no room in the file.
        let is_full = self.bytes.max(self.captured.len() as u64) > self.limit;
        if is_full {
            self.full_at_ns.get_or_insert(at_ns);
        }
        is_full
    }

    /// Adds a packet. `write` appends its headers to the captured bytes and returns its bytes on the wire.
    pub fn add(
        &mut self,
        identity: u64,
        comment: Option<String>,
        write: impl FnOnce(&mut Vec<u8>) -> usize,
    ) {
        let start = self.captured.len();
        let bytes = write(&mut self.captured) as u32;
        let captured = (self.captured.len() - start) as u8;
        let next = self.next();
        self.known.insert(identity, next);
        let comment = comment.map(String::into_boxed_str);
        self.packets.push(Packet { start, captured, bytes, ended: None, marked: None, comment });
    }

    /// The packet of `identity`, if it is captured.
    pub fn packet(&self, identity: u64) -> Option<u32> {
        self.known.get(&identity).copied()
    }

    /// A packet passes `point`.
    pub fn pass(&mut self, packet: u32, point: usize, at_ns: u64) {
        if let Some(interface) = self.points.interface(point) {
            self.bytes += packet_bytes(self.packets[packet as usize].captured.into());
            self.passages.push(Passage { at_ns, packet, interface });
        }
    }

    /// Notes when a packet entered and left a link, its fate and its mark.
    pub fn pass_link(&mut self, packet: u32, link: usize, record: &PacketRecord) {
        let [inward, outward] = of_link(link);
        self.pass(packet, inward, record.arrived_ns);
        if record.departed_ns > 0 {
            self.pass(packet, outward, record.departed_ns);
        }
        let packet = &mut self.packets[packet as usize];
        match record.fate {
            Fate::Delivered | Fate::Inside => {}
            fate => packet.ended = Some((link as u16, fate)),
        }
        if record.marked {
            packet.marked = Some((link as u16, record.departed_ns));
        }
    }

    /// Writes all packets in order of time; `comment` describes the capture.
    pub fn write(mut self, out: impl Write, comment: &str) -> io::Result<Written> {
        let interfaces = self.points.interfaces();
        let mut capture = Pcapng::new(out, self.limit, comment, self.link.number(), &interfaces)?;
        self.passages.sort_by_key(|passage| passage.at_ns);
        let mut entries = 0;
        for Passage { at_ns, packet, interface } in &self.passages {
            let packet = &self.packets[*packet as usize];
            let captured = &self.captured[packet.start..][..usize::from(packet.captured)];
            let mut captured = captured.to_vec();
            if packet.marked.is_some_and(|(_, from_ns)| from_ns <= *at_ns) {
                set_ce(self.link, &mut captured);
            }
            let frame = Frame {
                interface: *interface,
                at_ns: *at_ns,
                captured: &captured,
                bytes: packet.bytes,
                comment: &packet.told(&self.links),
            };
            if !capture.write(&frame)? {
                self.full_at_ns = Some(*at_ns);
                break;
            }
            entries += 1;
        }
        Ok(Written { entries, bytes: capture.finish()?, full_at_ns: self.full_at_ns })
    }
}

impl Packet {
    /// Comment of the packet's frames: its own text, its fate and its mark.
    fn told(&self, links: &[String]) -> String {
        let mut told: Vec<String> =
            self.comment.iter().map(|comment| comment.to_string()).collect();
        if let Some((link, fate)) = self.ended {
            let link = &links[usize::from(link)];
            told.push(match fate {
                Fate::QueueDrop => format!("dropped by the queue of {link}"),
                Fate::Lost => format!("lost on {link}"),
                _ => format!("dropped by the emulator of {link}"),
            });
        }
        if let Some((link, _)) = self.marked {
            told.push(format!("marked by the queue of {}", links[usize::from(link)]));
        }
        told.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::pcapng::blocks;
    use super::*;

    fn frames(wanted: &[&str], limit: u64) -> Frames {
        let links = vec!["forward".to_string()];
        let wanted: Vec<String> = wanted.iter().map(|name| name.to_string()).collect();
        let points = Points::new(&links, &wanted).unwrap();
        Frames::new(LinkLayer::Ppp, links, points, limit)
    }

    /// An IPv4 header over PPP.
    fn header(out: &mut Vec<u8>) -> usize {
        out.extend([0, 0x21, 0x45, 2]);
        out.extend([0; 18]);
        100
    }

    /// Interface, time, DSCP and ECN, and comment of each frame.
    fn read(capture: &[u8]) -> Vec<(u32, u64, u8, String)> {
        let packets = blocks(capture).into_iter().filter(|(kind, _)| *kind == 6);
        let read = packets.map(|(_, body)| {
            let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
            let comment = body.get(48..).map_or(&[][..], |comment| {
                let bytes = usize::from(u16::from_le_bytes([body[46], body[47]]));
                &comment[..bytes]
            });
            let comment = String::from_utf8(comment.to_vec()).unwrap();
            (word(0), u64::from(word(4)) << 32 | u64::from(word(8)), body[23], comment)
        });
        read.collect()
    }

    #[test]
    fn every_frame_records_the_fate_of_its_packet() {
        let mut frames = frames(&["all"], 10_000);
        for identity in [7, 8] {
            frames.add(identity, None, header);
        }
        let marked =
            PacketRecord { arrived_ns: 20, departed_ns: 30, marked: true, ..<_>::default() };
        let dropped = PacketRecord { arrived_ns: 15, fate: Fate::QueueDrop, ..<_>::default() };
        frames.pass(0, 0, 10);
        frames.pass_link(0, 0, &marked);
        frames.pass(0, 1, 40);
        frames.pass(1, 0, 12);
        frames.pass_link(1, 0, &dropped);
        assert_eq!([7, 9].map(|identity| frames.packet(identity)), [Some(0), None]);
        let mut out = Vec::new();
        let written = frames.write(&mut out, "").unwrap();
        assert_eq!(
            (written.entries, written.bytes, written.full_at_ns),
            (6, out.len() as u64, None)
        );
        let (mark, drop) = ("marked by the queue of forward", "dropped by the queue of forward");
        let expected = [
            (0, 10, 2, mark),
            (0, 12, 2, drop),
            (2, 15, 2, drop),
            (2, 20, 2, mark),
            (3, 30, 3, mark),
            (1, 40, 3, mark),
        ];
        assert_eq!(read(&out), expected.map(|(at, ns, tos, text)| (at, ns, tos, text.to_string())));
    }

    #[test]
    fn a_full_capture_says_since_when_it_is() {
        let mut frames = frames(&["sender"], 600);
        let mut sent = 0;
        while !frames.is_full(sent) {
            let packet = frames.next();
            frames.add(sent, None, header);
            frames.pass(packet, 0, sent);
            sent += 1;
        }
        let mut out = Vec::new();
        let written = frames.write(&mut out, "").unwrap();
        assert!(written.bytes <= 600 && written.entries < sent, "{written:?}");
        assert_eq!(written.full_at_ns, Some(written.entries));
    }
}
