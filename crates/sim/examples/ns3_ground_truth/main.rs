//! Runs what ns-3 has run and compares: `cargo run --release -p forebay-sim --example ns3_ground_truth`.
//!
//! Ends with 1 when fewer than 95 % of the (tight run, metric) pairs hold, or a loose or a loss pair does
//! not. A run with a parameter that cannot be simulated here misses in all its pairs.

mod run;
mod table;
mod topology;
mod truth;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
ns3_ground_truth [--file FILE] [--series | --json] [NAME..]
  --file FILE  the runs; default traces/ns3/ground_truth.json
  --series     second by second: ours (median jitter) beside ns-3.37 and 3.44, where FILE has them
  --json       nothing but how many pairs hold, of all, for each class
  NAME         only runs whose name contains it";

struct Options {
    file: PathBuf,
    series: bool,
    json: bool,
    names: Vec<String>,
}

fn options() -> Result<Options, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut options = Options {
        file: root.join("traces/ns3/ground_truth.json"),
        series: false,
        json: false,
        names: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--file" => options.file = arguments.next().ok_or(USAGE)?.into(),
            "--series" => options.series = true,
            "--json" => options.json = true,
            flag if flag.starts_with('-') => return Err(USAGE.into()),
            name => options.names.push(name.into()),
        }
    }
    Ok(options)
}

fn compare() -> Result<bool, String> {
    let options = options()?;
    let all = truth::read(&options.file)?;
    let is_wanted = |name: &str| {
        options.names.is_empty() || options.names.iter().any(|part| name.contains(part.as_str()))
    };
    let mut totals = verdict::Totals::default();
    for truth in all.iter().filter(|truth| is_wanted(&truth.name)) {
        let ours = match run::repeat(truth) {
            Ok(ours) => ours,
            Err(error) => {
                eprintln!("{} ({:?})\n  not run: {error}", truth.name, truth.class);
                totals.add_not_run(truth.class);
                continue;
            }
        };
        let verdicts = verdict::judge(truth, &ours);
        if !options.json {
            table::print(truth, &verdicts);
        }
        if options.series {
            table::print_series(truth, &ours);
        }
        totals.add(truth.class, &verdicts);
    }
    if options.json {
        println!("{}", table::json(&totals, all.len()));
        return Ok(true);
    }
    table::print_totals(&totals);
    table::print_first_look(&truth::first_look(&options.file)?);
    Ok(totals.holds())
}

fn main() -> ExitCode {
    match compare() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs that hold in every metric; each stands for a mechanism.
    const HOLD: [&str; 5] = [
        "step_rate_down_TcpNewReno",
        "step_rate_up_TcpCubic",
        "step_loss_down_TcpNewReno",
        "var_delack2",
        "var_no_sack",
    ];

    /// The runs of both files.
    fn known() -> Vec<truth::Truth> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/ns3");
        let files = ["ground_truth.json", "more_runs.json"].map(|name| folder.join(name));
        files.iter().flat_map(|file| truth::read(file).unwrap()).collect()
    }

    fn truth_with(key: &str, value: &str) -> truth::Truth {
        let mut all = known();
        let place = all.iter().position(|it| it.name == "step_rate_down_TcpNewReno").unwrap();
        let mut truth = all.swap_remove(place);
        truth.params[key] = value.into();
        truth.params["stop_s"] = 3.into();
        truth
    }

    #[test]
    fn every_parameter_changes_the_run_or_is_refused_by_name() {
        let figures = |key, value| {
            run::repeat(&truth_with(key, value)).map(|ours| (ours[0].flows.clone(), ours[0].link))
        };
        let nominal = figures("ecn", "0").unwrap();
        let changed = [
            ("timestamps", "0"),
            ("sack", "0"),
            ("reverse_rate", "0.5"),
            ("reverse_rate", "100000"),
            ("access_mbps", "100"),
            ("delay_place", "src"),
        ];
        for (key, value) in changed {
            let figures = figures(key, value).unwrap();
            assert!(figures.0[0].received_bytes > 0, "{key}");
            assert_ne!(figures, nominal, "{key} = {value} is ignored");
        }
        let refused = [
            ("short_load_mbps", "2"),
            ("delay_place", "split"),
            ("reverse_rate", "none"),
            ("ecn", "maybe"),
            ("jumbo_frames", "1"),
        ];
        for (key, value) in refused {
            assert_eq!(figures(key, value).unwrap_err(), format!("{key} = {value}"));
        }
    }

    #[test]
    fn ecn_marks_where_the_queue_can() {
        let mut truth = truth_with("ecn", "1");
        truth.params["qdisc"] = "CoDel".into();
        truth.params["qlen"] = "300p".into();
        let marks = |truth: &truth::Truth| {
            let ours = run::repeat(truth).unwrap();
            ours[0].link.total_qdisc_marks_l2
        };
        assert!(marks(&truth) > 0);
        truth.params["ecn"] = 0.into();
        assert_eq!(marks(&truth), 0);
    }

    #[test]
    fn these_runs_agree_with_ns3_in_every_metric() {
        let all = known();
        for name in HOLD {
            let truth = all.iter().find(|truth| truth.name == name).unwrap();
            let ours = run::repeat(truth).unwrap();
            for verdict in verdict::judge(truth, &ours) {
                assert!(verdict.holds, "{name}: {verdict:?}");
            }
        }
    }
}
