//! Ctrl-C during a command that continues when it is called again, and the command line to repeat.

use std::ffi::OsString;

use forebay_core::text::shell_word;

/// The command line of this process, without the options called `without` and their values, for a shell.
pub fn command_line(without: &[&str]) -> String {
    line(std::env::args_os().skip(1), without)
}

fn line(arguments: impl Iterator<Item = OsString>, without: &[&str]) -> String {
    let mut text = String::from("forebay");
    let mut arguments = arguments.map(|it| it.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        let (option, value) = argument.split_once('=').unzip();
        if without.contains(&option.unwrap_or(&argument)) {
            if value.is_none() {
                arguments.next();
            }
            continue;
        }
        text += &format!(" {}", shell_word(&argument));
    }
    text
}

/// From now on Ctrl-C ends this process with exit code 130, after a line that says how to continue. Without
/// the feature `host`, Ctrl-C ends it without that line.
///
/// # Errors
///
/// The system refuses a pipe, a thread or a signal handler.
#[cfg(not(feature = "host"))]
pub fn resume_after_interrupt() -> anyhow::Result<()> {
    Ok(())
}

#[cfg(feature = "host")]
pub use with_host::resume_after_interrupt;

#[cfg(feature = "host")]
mod with_host {
    use std::io::{PipeWriter, Read, pipe};
    use std::sync::OnceLock;

    use anyhow::Context;
    use nix::libc::c_int;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

    use super::command_line;

    /// Exit code after Ctrl-C, as shells report it: 128 and the number of SIGINT.
    const INTERRUPTED: i32 = 130;

    /// The end of the pipe that the signal handler writes to.
    static PRESSED: OnceLock<PipeWriter> = OnceLock::new();

    /// From now on Ctrl-C ends this process with exit code 130, after a line that says how to continue. The
    /// programs that it has started get the signal themselves.
    ///
    /// # Errors
    ///
    /// The system refuses a pipe, a thread or a signal handler.
    pub fn resume_after_interrupt() -> anyhow::Result<()> {
        let (mut pressed, told) = pipe().context("a pipe for Ctrl-C")?;
        if PRESSED.set(told).is_err() {
            return Ok(());
        }
        let wait = move || {
            if pressed.read_exact(&mut [0]).is_ok() {
                eprintln!("\n{}", words(&command_line(&[])));
                std::process::exit(INTERRUPTED);
            }
        };
        let named = std::thread::Builder::new().name("interrupt".into());
        named.spawn(wait).context("a thread for Ctrl-C")?;
        let handler = SigHandler::Handler(pass_on);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler only calls write(2), which is safe in a signal handler.
        let before =
            unsafe { sigaction(Signal::SIGINT, &action) }.context("a handler for Ctrl-C")?;
        if matches!(before.handler(), SigHandler::SigIgn) {
            // A script started the command in the background. SAFETY: the action was in force before.
            unsafe { sigaction(Signal::SIGINT, &before) }.context("no handler for Ctrl-C")?;
        }
        Ok(())
    }

    extern "C" fn pass_on(_: c_int) {
        if let Some(pipe) = PRESSED.get() {
            // The thread needs one byte only.
            let _ = nix::unistd::write(pipe, &[0]);
        }
    }

    /// How to continue after Ctrl-C with the command `line`.
    fn words(line: &str) -> String {
        let note = if line.split(' ').any(|word| word == "--force") {
            "\nWithout --force it keeps the results that it has."
        } else {
            ""
        };
        format!(
            "interrupted; complete results are kept. To continue, repeat the command:\n  {line}{note}"
        )
    }

    #[cfg(test)]
    mod tests {
        use super::words;

        #[test]
        fn words_name_command_and_warn_of_force() {
            assert!(words("forebay run a").ends_with("repeat the command:\n  forebay run a"));
            assert!(words("forebay run a --force").ends_with("keeps the results that it has."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_quoted_for_a_shell() {
        let of = |words: &[&str], without: &[&str]| line(words.iter().map(OsString::from), without);
        let words = ["run", "bundler/main", "--set", "aut=[\"bbr\"]", "--out", "my dir's", ""];
        let expected = r#"forebay run bundler/main --set 'aut=["bbr"]' --out 'my dir'\''s' ''"#;
        assert_eq!(of(&words, &[]), expected);
        for given in [&["run", "--backend", "emu", "a"][..], &["run", "--backend=emu", "a"]] {
            assert_eq!(of(given, &["--backend", "--keep-logs"]), "forebay run a");
        }
    }
}
