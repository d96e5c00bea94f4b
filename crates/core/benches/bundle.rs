//! Nanoseconds per packet at the boxes (headers, bundle, sampling hash, mark) and per message.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use forebay_core::bundle::keys::{KeyRing, PresharedKey};
use forebay_core::bundle::table::PrefixTable;
use forebay_core::bundle::wire::{Message, Reports};
use forebay_core::bundle::{BlockVersion, BundleId, EpochSize, Report, SampleBlock, SamplingKey};
use forebay_core::packet::{self, Headers};
use forebay_core::testing::{Role, Session};
use forebay_core::units::{ByteCount, Timestamp};

/// An IPv4 TCP packet from 10.0.1.2 to 10.0.2.3, ECT(0).
fn frame() -> Vec<u8> {
    let mut frame = vec![0; 1514];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = [0x45, 2, 5, 220, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 0, 1, 2, 10, 0, 2, 3];
    frame[14..34].copy_from_slice(&ip);
    frame
}

fn per_packet(criterion: &mut Criterion) {
    let mut frame = frame();
    let headers = Headers::parse(&frame).expect("a whole packet");
    let key = SamplingKey([7; 16]);
    criterion.bench_function("headers", |bencher| {
        bencher.iter(|| Headers::parse(black_box(&frame)));
    });
    criterion.bench_function("flow_hash", |bencher| {
        bencher.iter(|| black_box(&headers).flow_hash(1));
    });
    for (name, version) in
        [("sampling_hash", BlockVersion::V1), ("sampling_hash_v2", BlockVersion::V2)]
    {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let block = SampleBlock::from_frame(version, black_box(&frame));
                block.map(|block| block.hash(&key))
            });
        });
    }
    let prefixes: Vec<_> = (0..1000_u32)
        .map(|n| (format!("10.{}.{}.0/24", n / 256, n % 256).parse().expect("a prefix"), n))
        .collect();
    let table = PrefixTable::new(&prefixes).expect("distinct prefixes");
    criterion.bench_function("bundle_of_1000_prefixes", |bencher| {
        bencher.iter(|| table.lookup(black_box(headers.destination)).next());
    });
    criterion.bench_function("set_ce", |bencher| {
        bencher.iter(|| packet::set_ce(black_box(&mut frame)));
    });
}

fn per_message(criterion: &mut Criterion) {
    let ring = |byte| KeyRing::new(PresharedKey::new([byte; 32]), None);
    let now = Timestamp::from_nanos(1);
    let mut receivebox = Session::new(Role::Receivebox, BundleId(1), &ring(1), 1, 2, now);
    let report = Report {
        hash: 8,
        received_at: now,
        received_bytes: ByteCount::new(1500),
        received_packets: 1,
        received_ce: 0,
        epoch_size: EpochSize::MAX,
    };
    let message = Message::Reports(Reports::new(&[report]).expect("one report"));
    let mut datagram = Vec::new();
    criterion.bench_function("seal_report", |bencher| {
        bencher.iter(|| receivebox.seal(now, black_box(&message), &mut datagram));
    });
    // A wrong tag, and an old session under the right key.
    for (name, key) in [("reject_forged", 2), ("reject_unknown_session", 1)] {
        let mut sendbox = Session::new(Role::Sendbox, BundleId(1), &ring(key), 3, 4, now);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| sendbox.open(now, black_box(&datagram), &mut || 5));
        });
    }
}

criterion_group!(benches, per_packet, per_message);
criterion_main!(benches);
