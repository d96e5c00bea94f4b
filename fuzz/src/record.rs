//! Any bytes from the datapath's ring are refused or are a record that an algorithm accepts.

use forebay_ebpf::tcp::Record;

/// The bytes are a record of the ring.
pub fn run(bytes: &[u8]) {
    let Some(record) = Record::parse(bytes) else { return };
    let head = record.head();
    assert!(head.flow.generation > 0 && (1..=65_535).contains(&head.mss));
    if let Record::Report(report) = &record {
        assert!(report.congestion_events().count() <= 9);
    }
}
