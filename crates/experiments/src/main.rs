//! The laboratory as distributed: with the algorithms of `forebay-core` alone.

fn main() -> std::process::ExitCode {
    forebay_experiments::main(&[])
}
