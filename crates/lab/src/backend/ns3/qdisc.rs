//! Queueing disciplines as ns-3 has them.

use forebay_core::qdisc::discipline;
use forebay_core::spec::{Quantity, Spec, SpecError};
use forebay_core::units::{ByteCount, Duration, Limit, Rate, Ratio};
use forebay_sim::Stack;

use super::network::Qdisc;

/// Bytes of a full segment's frame on a point-to-point link of ns-3: 1,500 of the IP packet, and the PPP header.
const FRAME_BYTES: u64 = 1502;
/// Bytes of the PPP header, which a qdisc of ns-3 does not see and hence does not count.
const PPP_BYTES: u64 = 2;
/// Unit of `alpha` and `beta` of PIE (tc-pie(8)).
const PIE_GAIN: f64 = 16.0;

/// The discipline of `spec` in ns-3. The error names the parameter that has no counterpart there.
pub fn translate(spec: &Spec) -> Result<Qdisc, SpecError> {
    let known = discipline(spec)?;
    let given = spec;
    let spec = &Stack::NS3.with_defaults(spec).with_defaults(known.params);
    let time = |name| value::<Duration>(spec, name).map(|time| format!("{}ns", time.as_nanos()));
    let flag = |name| value::<bool>(spec, name).map(|it| it.to_string());
    let share = |name| value::<Ratio>(spec, name).map(Ratio::as_f64);
    let limit = || size(spec, "limit").map(|size| ("MaxSize", size));
    let (type_name, attributes) = match known.name {
        "fifo" => {
            refuse(given, &["ecn", "mark", "l4s"])?;
            ("ns3::FifoQueueDisc", vec![limit()?])
        }
        "codel" => (
            "ns3::CoDelQueueDisc",
            vec![
                limit()?,
                ("Target", time("target")?),
                ("Interval", time("interval")?),
                ("UseEcn", flag("ecn")?),
            ],
        ),
        "fq_codel" => {
            refuse(given, &["memory", "ways"])?;
            if let limit @ Limit::Bytes(_) = value::<Limit>(spec, "limit")? {
                let allowed = "packets, such as \"1000p\": ns-3's fq_codel counts no bytes";
                return Err(SpecError::new("limit", &limit.to_string(), allowed));
            }
            let quantum = value::<ByteCount>(spec, "quantum")?.as_u64() - PPP_BYTES;
            let attributes = vec![
                limit()?,
                ("Target", time("target")?),
                ("Interval", time("interval")?),
                ("UseEcn", flag("ecn")?),
                ("Flows", value::<u64>(spec, "flows")?.to_string()),
                ("QUANTUM", quantum.to_string()),
            ];
            ("ns3::FqCoDelQueueDisc", attributes)
        }
        "pie" => {
            let gain =
                |name| value::<u64>(spec, name).map(|gain| (gain as f64 / PIE_GAIN).to_string());
            let attributes = vec![
                limit()?,
                ("QueueDelayReference", time("target")?),
                ("Tupdate", time("tupdate")?),
                ("A", gain("alpha")?),
                ("B", gain("beta")?),
                ("MaxBurstAllowance", time("burst")?),
                ("UseEcn", flag("ecn")?),
                ("MarkEcnThreshold", share("ecn_threshold")?.to_string()),
                ("UseDerandomization", flag("derandomize")?),
            ];
            ("ns3::PieQueueDisc", attributes)
        }
        "red" => {
            let threshold = |name| threshold(spec, name);
            let rate_bps = value::<Rate>(spec, "bandwidth")?.as_bits_per_sec();
            let attributes = vec![
                limit()?,
                ("MinTh", threshold("min_th")?),
                ("MaxTh", threshold("max_th")?),
                ("LInterm", (1.0 / share("max_p")?).to_string()),
                ("QW", share("weight")?.to_string()),
                ("Gentle", flag("gentle")?),
                ("LinkBandwidth", format!("{rate_bps}bps")),
                ("MeanPktSize", "1000".into()),
                ("UseEcn", flag("ecn")?),
                ("UseHardDrop", flag("harddrop")?),
            ];
            ("ns3::RedQueueDisc", attributes)
        }
        other => {
            let allowed = "fifo, codel, fq_codel, pie or red: ns-3 has no such qdisc";
            return Err(SpecError::new("kind", other, allowed));
        }
    };
    Ok(Qdisc { type_name, attributes })
}

fn value<T: Quantity>(spec: &Spec, name: &'static str) -> Result<T, SpecError> {
    spec.value(name)?.ok_or_else(|| SpecError::absent(name, &spec.kind))
}

/// A size in packets or bytes, adjusted so that the same number of full segments fits.
fn size(spec: &Spec, name: &'static str) -> Result<String, SpecError> {
    Ok(match value::<Limit>(spec, name)? {
        Limit::Packets(packets) => format!("{packets}p"),
        Limit::Bytes(bytes) => {
            format!("{}B", bytes.as_u64() * (FRAME_BYTES - PPP_BYTES) / FRAME_BYTES)
        }
        limit @ Limit::Time(_) => {
            let allowed =
                "packets or bytes, such as \"1200p\" or \"1800KB\": ns-3 limits no queue by time";
            return Err(SpecError::new(name, &limit.to_string(), allowed));
        }
    })
}

/// A threshold of RED, in the unit of the limit.
fn threshold(spec: &Spec, name: &'static str) -> Result<String, SpecError> {
    let (limit, mut size) = (size(spec, "limit")?, size(spec, name)?);
    if size.pop() != limit.chars().last() {
        let allowed = "the unit of limit, packets or bytes: a queue of ns-3 counts one unit";
        return Err(SpecError::new(name, &value::<Limit>(spec, name)?.to_string(), allowed));
    }
    Ok(size)
}

/// Refuses the first of `names` that is set.
fn refuse(spec: &Spec, names: &[&str]) -> Result<(), SpecError> {
    match names.iter().find_map(|name| spec.params.get_key_value(*name)) {
        None => Ok(()),
        Some((name, value)) => {
            let allowed = format!("no value: ns-3's {} has no such parameter", spec.kind);
            Err(SpecError::new(name, &value.to_string(), &allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(spec: &str) -> Result<String, String> {
        let qdisc = translate(&spec.parse().unwrap()).map_err(|error| error.to_string())?;
        let attributes = qdisc.attributes.iter().map(|(name, value)| format!(" {name}={value}"));
        Ok(qdisc.type_name.to_string() + &attributes.collect::<String>())
    }

    #[test]
    fn each_discipline_has_its_attributes() {
        for (spec, expected) in [
            ("fifo(limit=20p)", "ns3::FifoQueueDisc MaxSize=20p"),
            // 20 frames of 1502 bytes are 30,040 bytes; one less fits, in ns-3 as here.
            ("fifo(limit=30KB)", "ns3::FifoQueueDisc MaxSize=29960B"),
            (
                "codel(limit=100p, ecn=true)",
                "ns3::CoDelQueueDisc MaxSize=100p Target=5000000ns Interval=100000000ns UseEcn=true",
            ),
            (
                "fq_codel",
                "ns3::FqCoDelQueueDisc MaxSize=10240p Target=5000000ns Interval=100000000ns UseEcn=true \
                 Flows=1024 QUANTUM=1512",
            ),
            (
                "pie(limit=300p)",
                "ns3::PieQueueDisc MaxSize=300p QueueDelayReference=15000000ns Tupdate=15000000ns A=0.125 \
                 B=1.25 MaxBurstAllowance=150000000ns UseEcn=false MarkEcnThreshold=0.1 \
                 UseDerandomization=false",
            ),
            (
                "red(limit=100p, min_th=20p, max_th=20p, weight=1, ecn=true, bandwidth=16Mbit/s)",
                "ns3::RedQueueDisc MaxSize=100p MinTh=20 MaxTh=20 LInterm=50 QW=1 Gentle=false \
                 LinkBandwidth=16000000bps MeanPktSize=1000 UseEcn=true UseHardDrop=false",
            ),
        ] {
            assert_eq!(text(spec).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn qdiscs_and_parameters_unknown_to_ns3_are_refused() {
        for (spec, expected) in [
            (
                "sfq",
                "kind = sfq: allowed is fifo, codel, fq_codel, pie or red: ns-3 has no such qdisc",
            ),
            (
                "fifo(ecn=true)",
                "ecn = true: allowed is no value: ns-3's fifo has no such parameter",
            ),
            (
                "fq_codel(ways=8)",
                "ways = 8: allowed is no value: ns-3's fq_codel has no such parameter",
            ),
            ("fq_codel(limit=1MB)", "limit = 1MB: allowed is packets, such as"),
            ("codel(limit=150ms)", "limit = 150ms: allowed is packets or bytes, such as"),
            ("red(limit=1MB)", "min_th = 5p: allowed is the unit of limit, packets or bytes"),
        ] {
            let error = text(spec).unwrap_err();
            assert!(error.starts_with(expected), "{spec}: {error}");
        }
    }
}
