//! Processes that a box starts from its own program, as hidden subcommands.

use std::io;
use std::path::PathBuf;

use super::conditions::Devices;
use super::keys::reader;
use super::observer::{self, names};
use crate::service::privileges::Account;

/// One of these processes. It runs until the box ends it.
#[derive(clap::Subcommand)]
pub enum Helper {
    /// Look names of other boxes up for a box.
    #[command(hide = true)]
    LookUp {
        /// The user that it becomes.
        #[command(flatten)]
        account: As,
    },
    /// Watch the devices of a box.
    #[command(hide = true)]
    Observe {
        /// The devices to observe, and the box that they are of (JSON).
        #[arg(value_parser = devices)]
        devices: Box<Devices>,
        /// The user that the process becomes which looks names up.
        #[command(flatten)]
        account: As,
    },
    /// Read the key files of a box which is no longer root.
    #[command(hide = true)]
    ReadKeys {
        /// The user of the box.
        #[arg(long)]
        uid: u32,
        /// Group of that user.
        #[arg(long)]
        gid: u32,
        /// The name of the box in the configuration file.
        #[arg(long = "box", value_name = "NAME")]
        name: String,
        /// The configuration file of the box, which names the key files.
        #[arg(last = true)]
        file: PathBuf,
    },
}

/// The user of this machine that the process becomes; `None`: it keeps its user.
#[derive(clap::Args)]
pub struct As {
    /// The user.
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    /// Group of that user.
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
}

fn devices(text: &str) -> serde_json::Result<Box<Devices>> {
    serde_json::from_str(text)
}

impl As {
    fn account(&self) -> Option<Account> {
        Some(Account::of(self.uid?, self.gid?))
    }
}

impl Helper {
    /// Runs the process.
    ///
    /// # Errors
    ///
    /// The kernel refuses a right that the process needs.
    pub fn execute(self) -> io::Result<()> {
        match self {
            Self::LookUp { account } => names::serve(account.account()),
            Self::Observe { devices, account } => {
                observer::run(&devices, account.account().as_ref())
            }
            Self::ReadKeys { uid, gid, name, file } => reader::serve(&file, &name, uid, gid),
        }
    }
}
