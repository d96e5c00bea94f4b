//! `forebay keygen`: the shared key of a bundle.

use std::path::PathBuf;
use std::process::ExitCode;

/// Generate the shared key of a bundle.
///
/// Both boxes of a bundle need the same key. Copy the file to the other box in a secure way, such
/// as scp.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay keygen /etc/forebay/bundle.key")]
pub struct Keygen {
    /// The new key file; an existing file is never overwritten.
    file: PathBuf,
}

#[cfg(feature = "host")]
impl Keygen {
    /// Writes the key. The secret is not printed.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use forebay_host::daemon::keys::{KeyFileError, generate};

        let is_denied = |error: &KeyFileError| {
            matches!(error, KeyFileError::Io { error, .. }
                if error.kind() == std::io::ErrorKind::PermissionDenied)
        };
        generate(&self.file).map_err(|error| match is_denied(&error) {
            true => anyhow::Error::from(error),
            false => super::BadInput(error.to_string()).into(),
        })?;
        eprintln!("{}: new key, mode 0600; copy it to the other box", self.file.display());
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(not(feature = "host"))]
impl Keygen {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self.file;
        Err(super::needs_host("keygen"))
    }
}
