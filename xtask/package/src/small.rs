//! The receivebox for small routers (`crates/receivebox`) as static programs for arm64 and x86-64.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Misuse, mapped_flags, repository, run};

/// Targets of the build: those with musl, because the toolchain includes its parts.
const TARGETS: [&str; 2] = ["aarch64-unknown-linux-musl", "x86_64-unknown-linux-musl"];
/// Largest size of a program in bytes: OpenWrt runs from 16 MB of flash, and leaves half of that free.
const BYTES_MAX: u64 = 4_000_000;
/// Name of the program and of its package of cargo.
const NAME: &str = "forebay-receivebox";

/// Builds both programs in `target/package`, and fails where one is too large.
pub fn small(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        return Err(Misuse::of(anyhow::anyhow!("{argument}: small takes no arguments")));
    }
    let folder = repository().join("target/package");
    std::fs::create_dir_all(&folder)?;
    run(Command::new("rustup").args(["target", "add"]).args(TARGETS))?;
    for target in TARGETS {
        let built = build(target)?;
        let architecture =
            target.split('-').next().context("a target begins with an architecture")?;
        let made = folder.join(format!("{NAME}-{architecture}"));
        std::fs::copy(&built, &made)?;
        let bytes = made.metadata()?.len();
        println!("{}: {bytes} bytes", made.display());
        ensure!(bytes < BYTES_MAX, "{}: allowed are fewer than {BYTES_MAX} bytes", made.display());
    }
    Ok(())
}

/// Builds the program for a target. The toolchain's own linker links both, so no other compiler is needed.
fn build(target: &str) -> Result<PathBuf> {
    let folder = repository().join("target/package/build");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(repository());
    cargo.args(["build", "--locked", "--package", NAME, "--profile", "small"]);
    cargo.args(["--target", target, "--target-dir"]).arg(&folder);
    let mut flags = mapped_flags(&repository(), "--remap-path-prefix")?.to_vec();
    flags.push("-Clinker=rust-lld".into());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    run(&mut cargo)?;
    Ok(Path::new(&folder).join(target).join("small").join(NAME))
}
