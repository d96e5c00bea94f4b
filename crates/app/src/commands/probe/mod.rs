//! `forebay probe`: would a bundle help on the path to a peer?

#[cfg(feature = "host")]
mod picture;
#[cfg(feature = "host")]
mod words;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_core::units::{Rate, Ratio, parse_link_rate};

/// Measure whether a bundle would help on the path to a peer.
///
/// Watches the path to PEER for 2.5 s, then loads it with two TCP connections, and then with more.
/// Time that they add to the round trip is a queue. A bundle helps if your own traffic makes that
/// queue and the queue is in the network.
///
/// PEER is a TCP server of yours that reads its input. `forebay probe --serve` is best: it also
/// separates the two directions. The probe sends nothing to other machines. Neither end needs root
/// or a box.
///
/// Run it where the sendbox would be, or on a host behind that place. Run it while the site is
/// quiet: the probe counts other traffic of the site as a part of the path. A queue before the
/// first router (--site-hops) is in the site.
///
/// Exit code 0: there is a verdict, good or bad; 1: the path could not be probed; 2: an option or
/// PEER is wrong.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay probe --serve                     # at the other site: UDP and TCP port 61477\n  \
    forebay probe site-b.example.net          # here\n  \
    forebay probe site-b.example.net:9 --max-rate 50Mbit/s      # a discard server\n  \
    forebay probe site-b.example.net:80 --http /upload          # an HTTP server that takes uploads\n  \
    forebay probe site-b.example.net --gentle --seconds 60      # effects of today's traffic\n  \
    forebay probe site-b.example.net --share 80                 # you send 80 % of the traffic\n  \
    forebay probe site-b.example.net --seconds 60 --record path.tar.gz   # then: forebay replay path.tar.gz\n  \
    forebay probe 10.1.2.2 --config sendbox.toml                # also asks the receivebox")]
pub struct Probe {
    /// The other end, one machine: HOST or HOST:PORT [default port: 61477].
    #[arg(required_unless_present = "serve", conflicts_with = "serve")]
    peer: Option<String>,
    /// Be the other end: read and answer all connections until you press ctrl-C.
    #[arg(long, num_args = 0..=1, default_missing_value = "[::]:61477", value_name = "ADDRESS:PORT")]
    serve: Option<SocketAddr>,
    /// Length of the load in seconds, 3 to 60 [default: 8]. With --serve: time until the end, 1 to
    /// 86400.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=86_400), value_name = "N")]
    seconds: Option<u32>,
    /// TCP connections of the load, 2 to 64.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=64), value_name = "N")]
    flows: u16,
    /// Largest rate of all connections together.
    #[arg(long, default_value = "1Gbit/s", value_parser = parse_link_rate, value_name = "RATE")]
    max_rate: Rate,
    /// Congestion control of the connections; choose that of the site's hosts [default: cubic].
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Send the load as the body of a POST request to this path of an HTTP server.
    #[arg(long, value_parser = http_path, value_name = "PATH")]
    http: Option<String>,
    /// Routers on the path that belong to the site, 0 to 8. A bundle cannot move a queue before the
    /// last one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=8), value_name = "N")]
    site_hops: u8,
    /// Share of the bottleneck's traffic that this site sends, in percent, above 0 and up to 100. A
    /// probe cannot measure it. Without this option, the verdict holds only if this site sends most
    /// of that traffic. Below 75 there is little to gain.
    #[arg(long, value_parser = share, allow_negative_numbers = true, value_name = "PERCENT")]
    share: Option<Ratio>,
    /// Also ask the receivebox at PEER, with the keys of this configuration of a sendbox.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Send small packets only, and watch how the present traffic delays them.
    #[arg(long, conflicts_with_all = ["flows", "max_rate", "cc", "http"])]
    gentle: bool,
    /// Write the loaded path into this new file: an archive as of `forebay record`, for `forebay
    /// replay` and `forebay trace convert`. Rates are of frames of TCP over IPv4.
    #[arg(long, conflicts_with_all = ["serve", "gentle"], value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
}

/// A path of a URL, which cannot begin another line of a request.
fn http_path(text: &str) -> Result<String, String> {
    let is_plain = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| text.into()).ok_or_else(|| "allowed is a path such as /upload".into())
}

/// A share in percent, with or without its sign.
fn share(text: &str) -> Result<Ratio, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>();
    let share = percent.ok().filter(|percent| *percent > 0.0);
    let share = share.and_then(|percent| Ratio::new(percent / 100.0));
    share.ok_or_else(|| "allowed is a number of percent above 0 and up to 100, such as 80".into())
}

#[cfg(feature = "host")]
mod with_host {
    use std::path::Path;
    use std::time::Duration;

    use anyhow::Context;
    use forebay_core::probe::{Findings, judge, probed_rows};
    use forebay_host::daemon::config::Peer;
    use forebay_host::daemon::record::Recording;
    use forebay_host::daemon::{BundleConfig, Config, Role, keys};
    use forebay_host::probe::receivebox::{self, Heard};
    use forebay_host::probe::{Options, ProbeError, ProbeStep, resolve, run, serve};

    use super::words::Said;
    use super::*;
    use crate::commands::record::{now_s, origin, refuse_existing, write_new};
    use crate::commands::{BadInput, print};

    /// Allowed lengths of a load (s). A shorter one cannot be judged.
    const SECONDS: std::ops::RangeInclusive<u32> = 3..=60;
    /// Default length of the load (s).
    const SECONDS_USUAL: u32 = 8;

    fn refuse(error: ProbeError) -> anyhow::Error {
        if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
    }

    impl Probe {
        /// Probes and prints, or answers probes.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            match self.serve {
                Some(listen) => self.answer(listen),
                None => self.ask(),
            }
        }

        fn answer(&self, listen: SocketAddr) -> anyhow::Result<ExitCode> {
            let span = self.seconds.map(|seconds| Duration::from_secs(seconds.into()));
            let mut ready = |address: SocketAddr| {
                eprintln!("answering probes at {address}, TCP and UDP; press ctrl-C to end");
            };
            serve::serve(listen, span, &mut ready).map_err(refuse)?;
            Ok(ExitCode::SUCCESS)
        }

        fn ask(self) -> anyhow::Result<ExitCode> {
            let seconds = self.seconds.unwrap_or(SECONDS_USUAL);
            if !SECONDS.contains(&seconds) {
                let allowed = "allowed is 3 to 60 without --serve";
                return Err(BadInput(format!("--seconds {seconds}: {allowed}")).into());
            }
            if let Some(file) = &self.record {
                refuse_existing("record", file)?;
            }
            let began_s = now_s();
            let asked = self.peer.as_deref().unwrap_or_default();
            let address = resolve(asked).map_err(refuse)?;
            let boxes = match &self.config {
                Some(file) => ask_boxes(file, asked, address)?,
                None => Vec::new(),
            };
            let options = Options {
                span: Duration::from_secs(seconds.into()),
                flows: (!self.gentle).then_some(self.flows),
                max_rate: self.max_rate,
                congestion_control: self.cc,
                http_path: self.http,
                site_hops: self.site_hops,
            };
            let mut told = None;
            let report = run(address, &options, &mut |progress| {
                let step = progress.step;
                if told.replace(step) != Some(step) {
                    let left = progress.total.saturating_sub(progress.elapsed);
                    eprintln!("{}; {:.0} s to go", doing(step, &options), left.as_secs_f64());
                }
            });
            let report = report.map_err(refuse)?;
            let found = Findings::of(&report.observed);
            let probed = probed_rows(&report.observed, &found);
            let verdict = judge(&found, self.share);
            let said = Said { peer: address, report, found, verdict, boxes };
            let text = if self.json { format!("{}\n", said.document()) } else { said.text() };
            print(&text)?;
            if let Some(file) = &self.record {
                let mut recording = Recording::new(origin(began_s));
                recording.about.took_s = seconds.into();
                recording.probed = probed;
                let bytes = recording.to_file().context("the recording cannot be packed")?;
                write_new(file, &bytes)?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }

    /// Asks the receiveboxes that `asked` names, at the addresses `peer`. Sendboxes of `file` have bundles to them.
    /// Returns their answers with the bundles' names.
    fn ask_boxes(
        file: &Path,
        asked: &str,
        peer: SocketAddr,
    ) -> anyhow::Result<Vec<(String, Heard)>> {
        let boxes = Config::load_all(file).map_err(|error| BadInput(error.to_string()))?;
        let name_asked = asked.split(':').next().unwrap_or_default();
        let there = |bundle: &BundleConfig| match &bundle.peer {
            Peer::At(address) => (address.ip() == peer.ip()).then_some(*address),
            Peer::Named { name, port } => {
                let is_it = name.eq_ignore_ascii_case(name_asked);
                is_it.then(|| SocketAddr::new(peer.ip(), *port))
            }
        };
        let mut bundles: Vec<(&BundleConfig, SocketAddr, SocketAddr)> = Vec::new();
        for config in boxes.iter().filter(|config| config.role == Role::Sendbox) {
            let own = config.listen.iter().find(|own| own.is_ipv4() == peer.is_ipv4());
            let Some(own) = own else { continue };
            bundles.extend(config.bundles.iter().filter_map(|it| Some((it, *own, there(it)?))));
        }
        if bundles.is_empty() {
            let (file, peer) = (file.display(), peer.ip());
            let allowed =
                format!("allowed is the file of a sendbox with a bundle whose peer is {peer}");
            return Err(BadInput(format!("--config {file}: {allowed}")).into());
        }
        let ask = |(bundle, own, there): (&BundleConfig, _, _)| -> anyhow::Result<_> {
            let keys = keys::load(&bundle.key_file).map_err(|error| BadInput(error.to_string()))?;
            let heard = receivebox::ask(own, there, bundle.id, &keys);
            Ok((bundle.name.clone(), heard.map_err(refuse)?))
        };
        bundles.into_iter().map(ask).collect()
    }

    fn doing(step: ProbeStep, options: &Options) -> String {
        match step {
            ProbeStep::Idle if options.flows.is_none() => "watching the path".into(),
            ProbeStep::Idle => "watching the path before the load".into(),
            ProbeStep::Few => "two connections send".into(),
            ProbeStep::Many => format!("{} connections send", options.flows.unwrap_or_default()),
            ProbeStep::Last => "waiting for the last answers".into(),
        }
    }
}

#[cfg(not(feature = "host"))]
impl Probe {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.peer, self.serve, self.seconds, self.flows, self.max_rate, self.cc);
        let _ = (self.http, self.site_hops, self.share, self.config, self.gentle, self.json);
        let _ = self.record;
        Err(super::needs_host("probe"))
    }
}

#[cfg(test)]
mod tests {
    use super::{http_path, share};

    #[test]
    fn a_path_cannot_begin_another_header() {
        assert_eq!(http_path("/upload?to=/dev/null"), Ok("/upload?to=/dev/null".into()));
        for wrong in ["", "upload", "/a b", "/a\r\nHost: other", "/\u{e9}"] {
            assert!(http_path(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn share_is_above_zero_and_at_most_all() {
        for (text, expected) in
            [("100", 1.0), ("80", 0.8), ("6.5", 0.065), ("25%", 0.25), ("25 %", 0.25)]
        {
            assert_eq!(share(text).unwrap().as_f64(), expected, "{text}");
        }
        for wrong in ["", "0", "-1", "100.1", "nan", "inf", "most", "%", "0.8.1", "1e-400"] {
            let said = share(wrong).unwrap_err();
            assert!(said.contains("above 0 and up to 100"), "{wrong:?}: {said}");
        }
    }
}
