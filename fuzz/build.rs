//! Defines whether the coverage counters exist: only when built with fuzz/.cargo/config.toml in
//! force.

fn main() {
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if flags.contains("instrument-coverage") {
        println!("cargo::rustc-cfg=coverage_counters");
    }
}
