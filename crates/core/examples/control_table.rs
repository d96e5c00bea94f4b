//! scratch
use forebay_core::testing::plant::Plan;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let laws: Vec<&str> = args[0].split(',').collect();
    for law in laws {
        for mbit in args[1].split(',').map(|s| s.parse::<u64>().unwrap()) {
            for rtt in args[2].split(',').map(|s| s.parse::<u64>().unwrap()) {
                for extra in args[3].split(',').map(|s| s.parse::<f64>().unwrap()) {
                    for seed in 1..=args[4].parse::<u64>().unwrap() {
                    let mut plan = Plan::new(law, mbit, rtt).seed(seed);
                    plan.report_delay = plan.rtt.mul_f64(extra);
                    let started = std::time::Instant::now();
                    let trace = plan.run();
                    println!(
                        "{law:9} {mbit:4} x {rtt:3} +{extra} s{seed}: util {:.2}% queue {:.1} p95 {} ({:.0} rep/s, {:.2}s) start {:.1}%/{:.0}",
                        100.0 * trace.utilisation(5.0, 40.0),
                        trace.mean_queue(5.0, 40.0),
                        trace.p95_queue(5.0, 40.0),
                        trace.reports as f64 / 40.0,
                        started.elapsed().as_secs_f64(),
                        100.0 * trace.utilisation(2.0, 4.0),
                        trace.mean_queue(2.0, 4.0),
                    );
                    if args.len() > 5 {
                        for (i, bin) in trace.bins.iter().enumerate() {
                            if i % args[5].parse::<usize>().unwrap() == 0 {
                                println!("  {:.2} q {} rate {:?} minrtt {:?}", i as f64 * 0.01, bin.queue_packets, bin.bundles[0].rate_bps.map(|b| b as f64 / 1e6), bin.bundles[0].min_rtt);
                            }
                        }
                    }
                    }
                }
            }
        }
    }
}
