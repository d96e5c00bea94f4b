//! Memory that a simulated run keeps for each packet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use forebay_lab::backend;
use forebay_lab::metrics::evaluate;
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::Source;

/// Counts the bytes that the calling thread has allocated, and their maximum.
struct Counting;

thread_local! {
    /// Allocated bytes of this thread: now, and at most.
    static BYTES: Cell<[i64; 2]> = const { Cell::new([0; 2]) };
}

fn count(bytes: i64) {
    let [now, most] = BYTES.get();
    BYTES.set([now + bytes, most.max(now + bytes)]);
}

// SAFETY: every call goes to the system's allocator unchanged; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Counts all allocations of the test.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak memory (bytes) of a run of `seconds` and its evaluation, and its packets in both directions.
fn run(seconds: u32) -> (f64, f64) {
    let text = format!(
        "name = \"p\"\nstop = \"{seconds}s\"\n\
         bottleneck = {{ rate = \"400Mbit/s\", rtt = \"20ms\", qdisc = {{ kind = \"fifo\", limit = \"1bdp\" }} }}\n\
         flow = [{{ cc = \"newreno\", traffic = {{ kind = \"greedy\" }} }}]\n"
    );
    let source = Source { file: "p".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let sim = backend::open("sim").unwrap();
    let [before, _] = BYTES.get();
    BYTES.set([before; 2]);
    let rows = sim.run(&experiment, Path::new(""), &mut |_| ()).unwrap();
    let evaluation = evaluate(&experiment, &rows).unwrap();
    let [_, most] = BYTES.get();
    let packets = evaluation.links.iter().map(|link| link.metrics.get("passed_packets").unwrap());
    ((most - before) as f64, packets.sum())
}

#[test]
fn keeps_at_most_two_bytes_per_packet() {
    let ((short, some), (long, many)) = (run(2), run(10));
    assert!(many - some > 300_000.0);
    let bytes = (long - short) / (many - some);
    assert!(bytes <= 2.0, "{bytes} bytes a packet, {short} and {long} at the most");
    assert!(short < 5e6, "{short}");
}
