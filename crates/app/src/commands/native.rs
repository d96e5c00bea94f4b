//! `forebay native`: algorithms that run in the kernel alone.

use std::process::ExitCode;

/// Arguments of `forebay native`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay native --algorithm cubic                 # registers fb_native_cubic\n  \
    iperf3 -c HOST -C fb_native_cubic\n\n\
    It runs in the foreground. The algorithms are forebay's own, and need nobody to decide for them; forebay \
    agent has more. When it ends, connections that are open keep theirs and new ones cannot select \
    them.\n\n\
    Needs root and Linux 6.4. Exit code 2: no privilege, a kernel that lacks something, or no such \
    algorithm; 1: the kernel refuses, such as a name that is taken.")]
pub struct Native {
    /// An algorithm: reno or cubic, or vegas, westwood or core:newreno, compiled from the simulator's. May be
    /// given once for each.
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
            let refusal =
                |allowed| BadInput(format!("--algorithm {name}: allowed is one of {allowed}"));
            native::KernelAlgorithm::named(name).map_err(refusal)
        };
        let kinds = self.algorithms.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
        let line = |kind: &native::KernelAlgorithm| {
            let name = kind.name();
            format!(
                "{name} is registered: TCP_CONGESTION of a socket, congctl of a route or \
                 net.ipv4.tcp_congestion_control selects it\n"
            )
        };
        let text: String = kinds.iter().map(line).collect();
        native::hold(&kinds, format!("{text}ctrl-C ends it.\n")).map_err(exit)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses the command, which this build lacks.
    #[cfg(not(feature = "host"))]
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self;
        Err(super::needs_host("native"))
    }
}
