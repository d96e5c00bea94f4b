use super::*;
use crate::qdisc::Discipline;
use crate::spec::Value;
use alloc::format;
use alloc::string::String;
use proptest::prelude::*;

/// The bytes that each flow gets out of `total` when flow `n` always has packets waiting with the
/// bytes and the class of `flows[n]`. Time stands still, so that CoDel is content.
fn shares(spec: &Spec, flows: &[(u64, u8)], total: u64) -> Vec<u64> {
    let mut model = Model::new(spec).expect("a valid spec");
    let arrival = |flow: usize| {
        let (len, class) = flows[flow];
        Operation::Enqueue { flow: flow as u32, len, class, ecn: Ecn::NotEct }
    };
    // More than a quantum of each, however small its packets.
    for flow in (0..flows.len()).cycle().take(flows.len() * 100) {
        model.apply(&arrival(flow));
    }
    let mut shares = alloc::vec![0; flows.len()];
    while shares.iter().sum::<u64>() < total {
        let packet = model.apply(&Operation::Dequeue).expect("always backlogged");
        shares[packet.flow as usize] += packet.len.as_u64();
        model.apply(&arrival(packet.flow as usize));
    }
    shares
}

fn spread(shares: &[u64]) -> u64 {
    shares.iter().max().unwrap_or(&0) - shares.iter().min().unwrap_or(&0)
}

#[test]
fn fifo_shares_by_packets_so_fairness_tests_fail() {
    let shares = shares(&Spec::named("fifo"), &[(1500, 0), (60, 0)], 1_000_000);
    assert!(shares[0] > 20 * shares[1], "{shares:?}");
}

#[test]
fn time_limit_holds_down_to_ten_packets() {
    let arrival = Operation::Enqueue { flow: 1, len: 1514, class: 0, ecn: Ecn::NotEct };
    let rate =
        |kbit_per_sec: u64| Operation::SetRate(Some(Rate::from_bits_per_sec(kbit_per_sec * 1000)));
    let kinds = qdisc::DISCIPLINES
        .iter()
        .filter(|entry| entry.params.iter().any(|it| it.name() == "limit"));
    for entry in kinds {
        let spec = Spec::named(entry.name).with("limit", Value::Text("150ms".into()));
        // Nothing but the limit may drop an arrival.
        let spec = match entry.name {
            "red" => spec
                .with("min_th", Value::Text("900p".into()))
                .with("max_th", Value::Text("2000p".into())),
            _ => spec,
        };
        // 150 ms are 247.7 packets, and at less than 0.8 Mbit/s not even 10.
        for (kbit_per_sec, most) in [(20_000, 247_u64), (500, 10), (0, 10)] {
            let mut model = Model::new(&spec).expect("a valid spec");
            model.apply(&rate(kbit_per_sec));
            (0..1000).for_each(|_| assert_eq!(model.apply(&arrival), None));
            // A batch of fq_codel takes up to 64.
            let left = model.backlog().packets;
            assert!(
                (most.saturating_sub(64).max(most / 2)..=most).contains(&left),
                "{spec}: {left}"
            );
        }
        // After the rate falls, the next arrival either removes queued packets or is dropped.
        let mut model = Model::new(&spec).expect("a valid spec");
        model.apply(&rate(20_000));
        (0..247).for_each(|_| assert_eq!(model.apply(&arrival), None));
        assert_eq!(model.backlog().packets, 247, "{spec}");
        model.apply(&rate(2_000));
        model.apply(&arrival);
        let gives_up_others = ["sfq", "drr", "las", "fq_codel"].contains(&entry.name);
        let left = model.backlog().packets;
        assert!(left <= 24 || left == 247 && !gives_up_others, "{spec}: {left}");
        while model.backlog().packets > 0 {
            model.apply(&Operation::Dequeue);
        }
        (0..100).for_each(|_| assert_eq!(model.apply(&arrival), None));
        assert!(model.backlog().packets <= 24, "{spec}");
    }
}

/// Any text that a plan may contain, near the grammar of quantities and far from it.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9]{1,20}(p|B|KB|GB|ms|s|min|bit/s|Gbit/s|%)?", "\\PC{0,12}"]
}

proptest! {
    #[test]
    fn every_discipline_keeps_the_rules(operations in operations()) {
        for spec in specs() {
            let mut model = Model::new(&spec).expect("a valid spec");
            for operation in &operations {
                model.apply(operation);
            }
        }
    }

    #[test]
    fn backlogged_flows_share_bytes_whatever_packet_sizes(
        lens in prop::collection::vec(60u64..9000, 2..6),
        quantum in 1514u64..9000,
    ) {
        for kind in ["sfq", "drr", "fq_codel"] {
            let quantum_text = Value::Text(format!("{quantum}B"));
            let spec = Spec::named(kind).with("quantum", quantum_text);
            let flows: Vec<(u64, u8)> = lens.iter().map(|len| (*len, 0)).collect();
            let shares = shares(&spec, &flows, 500_000);
            // Fairness measure of DRR (Shreedhar and Varghese, theorem 3): quantum + 2 x max.
            let bound = quantum + 2 * lens.iter().max().unwrap_or(&0);
            prop_assert!(spread(&shares) <= bound, "{kind}: {shares:?} of {lens:?}");
        }
    }

    #[test]
    fn backlogged_flows_share_bytes_by_class_weight(
        flows in prop::collection::vec((60u64..9000, 0u8..3), 2..6),
        weights in prop::array::uniform3(1i64..6),
        ways in prop::sample::select(alloc::vec![1i64, 2, 4, 8]),
    ) {
        for kind in ["sfq", "drr"] {
            let spec = Spec::named(kind)
                .with("ways", Value::Integer(ways))
                .with("classes", Value::List(Vec::new()))
                .with("weights", Value::List(weights.map(Value::Integer).to_vec()));
            let shares = shares(&spec, &flows, 500_000);
            let by_weight = |(share, (_, class)): (&u64, &(u64, u8))| {
                share / weights[usize::from(*class)] as u64
            };
            let by_weight: Vec<u64> = shares.iter().zip(&flows).map(by_weight).collect();
            let longest = flows.iter().map(|(len, _)| *len).max().unwrap_or(0);
            prop_assert!(spread(&by_weight) <= 1514 + 2 * longest, "{spec}: {shares:?} of {flows:?}");
        }
    }

    #[test]
    fn parameter_value_is_accepted_or_refused_by_name(text in texts()) {
        for entry in qdisc::DISCIPLINES {
            for param in entry.params {
                let spec = Spec::named(entry.name)
                    .with("rate", Value::Text("1Mbit/s".into()))
                    .with(param.name(), Value::Text(text.clone()));
                let takes_rate = entry.params.iter().any(|param| param.name() == "rate");
                let params = spec.params.into_iter();
                let params = params.filter(|(name, _)| takes_rate || name != "rate").collect();
                let spec = Spec { kind: spec.kind, params };
                if let Err(error) = qdisc::build::<TestPacket>(&spec) {
                    let is_named = error.key.split(['.', '[']).next() == Some(param.name());
                    // A prio lacks its bands, an interval must not be below the target, nor
                    // one threshold below the other; classes and weights lack each other.
                    let related = ["bands", "interval", "max_th", "classes", "weights"];
                    let is_related = related.contains(&error.key.as_str());
                    prop_assert!(is_named || is_related, "{spec}: {error}");
                    prop_assert!(!error.allowed.is_empty());
                }
            }
        }
    }
}

#[test]
fn every_default_is_taken_when_written_out() {
    let has_bands = |entry: &Discipline| entry.params.iter().any(|param| param.name() == "bands");
    for entry in qdisc::DISCIPLINES.iter().filter(|entry| !has_bands(entry)) {
        let mut spec = Spec::named(entry.name);
        if entry.params.iter().any(|param| param.name() == "rate") {
            spec = spec.with("rate", Value::Text("1Mbit/s".into()));
        }
        let spec = spec.with_defaults(entry.params);
        let built = qdisc::build::<TestPacket>(&spec).map(|_| ());
        assert_eq!(built, Ok(()), "{spec}");
    }
}
