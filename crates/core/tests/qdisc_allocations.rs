//! No discipline allocates per packet once its queues have grown. Evaluating the graph of a policy does not
//! allocate. A policy allocates the memory for its graph at its first decision.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use forebay_core::cc::policy::graph::{Builder, Evaluation, Operator};
use forebay_core::cc::policy::{self, observation};
use forebay_core::qdisc::{DropReason, DropSink, build};
use forebay_core::spec::Spec;
use forebay_core::testing::qdisc::{TestPacket, specs};
use forebay_core::units::{ByteCount, Duration, Timestamp};

/// Counts the allocations of the calling thread, and their bytes.
struct Counting;

thread_local! {
    /// Number of allocations of the thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread has allocated.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        BYTES.with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The allocator of this test program.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Ignore;

impl DropSink<TestPacket> for Ignore {
    fn dropped(&mut self, _packet: TestPacket, _reason: DropReason) {}
}

#[test]
fn a_warm_discipline_allocates_nothing() {
    for spec in specs() {
        let mut qdisc = build::<TestPacket>(&spec).expect("a valid spec");
        let mut run = |packets: std::ops::Range<u64>| {
            for sequence in packets {
                // 3 arrivals for 2 departures, 1 ms apart: queues fill, drop and change keys.
                let now = Timestamp::ZERO + Duration::from_millis(sequence);
                let (flow, class) = ((sequence * 7919 % 31) as u32, (sequence % 4) as u8);
                let packet = TestPacket { flow, sequence, class, ..TestPacket::default() };
                qdisc.enqueue(now, packet, &mut Ignore);
                if sequence % 3 != 0 {
                    qdisc.dequeue(now, &mut Ignore);
                }
            }
            assert!(qdisc.backlog().packets > 0, "{spec} stayed empty");
        };
        run(0..2000);
        let before = ALLOCATIONS.get();
        run(2000..12_000);
        assert_eq!(ALLOCATIONS.get() - before, 0, "{spec}");
    }
}

#[test]
fn an_evaluation_allocates_nothing() {
    let (mut builder, input) = Builder::new(&[10, 1, 14]).unwrap();
    let mut constant = |shape: &[usize]| {
        let numbers = vec![0.1; shape.iter().product()];
        Some(builder.constant(shape, &numbers).unwrap())
    };
    let weights = [&[1, 24, 14][..], &[1, 24, 8]].map(&mut constant);
    let row = constant(&[8]);
    let [kernel, recurrent] = weights;
    let states = builder.apply(&Operator::Gru, &[Some(input), kernel, recurrent]).unwrap();
    let last = Some(builder.last_of(&states));
    let normal = Operator::LayerNormalization { axis: -1, epsilon: 1e-5 };
    let normal = Some(builder.apply(&normal, &[last.clone(), row]).unwrap());
    let both = builder.apply(&Operator::Concat { axis: -1 }, &[normal, last]).unwrap();
    let shares = builder.apply(&Operator::Softmax { axis: -1 }, &[Some(both)]).unwrap();
    let mut evaluation = Evaluation::new(Arc::new(builder.finish(&shares).unwrap()));
    let before = ALLOCATIONS.get();
    for step in 0..100_u16 {
        evaluation.input().fill(f32::from(step));
        assert!(evaluation.run()[0].is_finite());
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn policy_allocates_its_graph_only_on_first_decision() {
    const HIDDEN: usize = 30_000;
    let (mut builder, input) = Builder::new(&[1, observation::WIDTH]).unwrap();
    let mut value = input;
    for shape in [[observation::WIDTH, HIDDEN], [HIDDEN, 1]] {
        let weights = builder.constant(&shape, &vec![0.0; shape[0] * shape[1]]).unwrap();
        value = builder.apply(&Operator::MatMul, &[Some(value), Some(weights)]).unwrap();
    }
    let graph = Arc::new(builder.finish(&value).unwrap());
    let taken = |work: &mut dyn FnMut()| {
        let before = BYTES.get();
        work();
        BYTES.get() - before
    };
    let mut cc = None;
    let built = taken(&mut || cc = policy::build(&graph, &Spec::named("policy")).ok());
    let mut cc = cc.unwrap();
    let mss = ByteCount::new(1448);
    let begun = taken(&mut || cc.init(Timestamp::ZERO, mss, mss * 10));
    assert!(built + begun < HIDDEN, "{built} and {begun} bytes");
    let decided = taken(&mut || cc.on_timer(Timestamp::ZERO + Duration::from_secs(1)));
    assert!(decided >= HIDDEN * size_of::<f32>(), "{decided} bytes");
}
