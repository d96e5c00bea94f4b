//! The `forebay` command as it comes: with the algorithms of `forebay-core` alone.

fn main() -> std::process::ExitCode {
    forebay::main(&[])
}
