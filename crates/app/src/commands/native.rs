//! `forebay native`: algorithms that run in the kernel alone.

use std::process::ExitCode;

/// Register BPF algorithms that run in the kernel alone.
///
/// Runs in the foreground and needs root and Linux 6.4. The algorithms run in the kernel alone: no
/// process controls the connections. `forebay agent` has more algorithms. When this command ends,
/// open connections keep their algorithm, and new connections cannot select it.
///
/// Exit code 1: the kernel refused, for example a name that is taken, or a privilege or a function of
/// the kernel is missing; 2: there is no such algorithm.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay native --algorithm cubic                 # registers fb_native_cubic\n  \
    iperf3 -c HOST -C fb_native_cubic")]
pub struct Native {
    /// Algorithm: reno or cubic; or vegas, westwood, bbr3 (Linux 6.10) or core:newreno, compiled from the
    /// simulator's code. May be repeated for several algorithms.
    #[arg(long = "algorithm", required = true, value_name = "NAME")]
    algorithms: Vec<String>,
}

impl Native {
    /// Registers and holds them.
    #[cfg(feature = "host")]
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use forebay_host::agent::native;

        use super::BadInput;
        use super::agent::exit;

        let kind = |name: &String| {
            let refusal = |allowed| BadInput(format!("--algorithm {name}: allowed is {allowed}"));
            native::KernelAlgorithm::named(name).map_err(refusal)
        };
        let kinds = self.algorithms.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
        let line = |kind: &native::KernelAlgorithm| {
            let name = kind.name();
            format!(
                "{name} is registered: select it by TCP_CONGESTION of a socket, congctl of a route or \
                 net.ipv4.tcp_congestion_control\n"
            )
        };
        let text: String = kinds.iter().map(line).collect();
        native::hold(&kinds, format!("{text}Press ctrl-C to end.\n")).map_err(exit)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses the command, which this build lacks.
    #[cfg(not(feature = "host"))]
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self;
        Err(super::needs_host("native"))
    }
}
