//! `cargo xtask bpf-algorithms`: algorithms of core as BPF objects.
//!
//! This needs no Rust for BPF, which would require a nightly toolchain and the sources of its library. The
//! repository's rustc writes LLVM's IR for this machine, which depends little on it. LLVM's tools of the same
//! toolchain translate that into BPF. clang compiles the C around an algorithm (`tcp_algorithm.bpf.c`) to
//! bitcode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::libbpf_sys::API_HEADERS;

use crate::{Misuse, repository, run};

/// Each has a function `forebay_NAME` in `crates/ebpf/algorithms`; [`PACED`] has several.
const ALGORITHMS: [&str; 4] = ["bbr3", "newreno", "vegas", "westwood"];
/// The algorithm that sets a pacing rate.
const PACED: &str = "bbr3";
/// Crates whose IR the objects contain.
const CRATES: [&str; 3] = ["forebay_bpf_algorithms-", "forebay_core-", "rand_xoshiro-"];
/// The objects, below the repository.
const OBJECTS: &str = "crates/ebpf/bpf/algorithms";
/// Folder for intermediate files, below the repository.
const WORK: &str = "target/bpf-algorithms";
/// Their hashes, for `sha256sum --check` in their folder.
const HASHES: &str = "SHA256SUMS";

/// Attributes in a function's IR that depend on this machine.
const OF_MACHINE: [&str; 4] =
    ["\"probe-stack\"=", "\"target-cpu\"=", "\"target-features\"=", "\"tune-cpu\"="];

/// The attribute for unwinding that rustc gives each function. No algorithm unwinds (`-Cpanic=abort`). If a
/// function did, LLVM would refuse the IR without this attribute.
const PERSONALITY: &str = " personality ptr @rust_eh_personality";

/// Makes the objects and their hashes. With `--check`, checks whether the objects in the repository match the
/// sources.
///
/// # Errors
///
/// Something is missing, an algorithm may panic or calls a function that BPF does not have, or an object
/// differs.
pub fn build(arguments: &[String]) -> Result<()> {
    let is_check = match arguments {
        [] => false,
        [one] if one == "--check" => true,
        _ => return Err(Misuse::of(anyhow!("bpf-algorithms takes --check or nothing"))),
    };
    let work = repository().join(WORK);
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let tools = Tools::find()?;
    let laws = tools.laws(&work)?;
    let object = |name| tools.object(name, &laws, &work).with_context(|| format!("law {name}"));
    // All objects are made before the first is kept.
    let made: Vec<PathBuf> = ALGORITHMS.into_iter().map(object).collect::<Result<_>>()?;
    let folder = repository().join(OBJECTS);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (name, object) in ALGORITHMS.into_iter().zip(&made) {
        let (kept, made) = (folder.join(file(name)), fs::read(object)?);
        let path = kept.display();
        if is_check {
            let is_same = fs::read(&kept).with_context(|| path.to_string())? == made;
            ensure!(is_same, "{path} differs from its sources: cargo xtask bpf-algorithms");
        } else {
            fs::write(&kept, made).with_context(|| path.to_string())?;
        }
    }
    let mut hash = Command::new("sha256sum");
    hash.current_dir(&folder);
    if is_check {
        return run(hash.args(["--check", "--quiet", HASHES]));
    }
    let hashes = output(hash.args(ALGORITHMS.map(file)))?;
    fs::write(folder.join(HASHES), hashes).with_context(|| HASHES.to_string())?;
    println!("{} objects with their hashes: {OBJECTS}", made.len());
    Ok(())
}

fn file(name: &str) -> String {
    format!("{name}.bpf.o")
}

/// Output of a command.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {stderr}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{command:?}"))
}

/// LLVM's tools of the toolchain, which read the IR of its rustc.
struct Tools {
    folder: PathBuf,
    /// As cargo calls this machine.
    host: String,
}

impl Tools {
    fn find() -> Result<Self> {
        let asked = |argument: &[&str]| {
            output(Command::new("rustc").current_dir(repository()).args(argument))
        };
        let version = asked(&["-vV"])?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.context("rustc -vV names no host")?.to_string();
        let root = PathBuf::from(asked(&["--print", "sysroot"])?.trim());
        let folder = root.join("lib/rustlib").join(&host).join("bin");
        for tool in ["llvm-link", "llvm-dis", "llvm-nm", "llvm-strip", "opt", "llc"] {
            ensure!(
                folder.join(tool).exists(),
                "{tool} is missing in {}: rustup component add llvm-tools",
                folder.display()
            );
        }
        Ok(Self { folder, host })
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(self.folder.join(name))
    }

    /// The IR of [`CRATES`], for BPF.
    fn laws(&self, work: &Path) -> Result<[PathBuf; CRATES.len()]> {
        let deps = work.join(&self.host).join("release/deps");
        if deps.exists() {
            // IR of other sources has other names.
            fs::remove_dir_all(&deps).with_context(|| deps.display().to_string())?;
        }
        // One code unit for each crate. BPF does not support vectorisation, and its verifier does not see that an
        // index into a table of a match is in bounds.
        let flags = "--emit=llvm-ir -Ccodegen-units=1 -Cpanic=abort -Cno-vectorize-loops \
                     -Cno-vectorize-slp -Cjump-tables=no";
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(repository()).args(["build", "--release", "--locked", "--package"]);
        cargo.args(["forebay-bpf-algorithms", "--target", &self.host, "--target-dir"]).arg(work);
        cargo.env("RUSTFLAGS", flags).env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        run(&mut cargo)?;
        let target = self.target(work)?;
        let made = CRATES.map(|name| work.join(format!("{name}.ll")));
        for (name, path) in CRATES.into_iter().zip(&made) {
            let text = fs::read_to_string(ir_of(&deps, name)?)?;
            fs::write(path, for_bpf(&text, &target))?;
        }
        Ok(made)
    }

    /// The lines of an IR that name its target, as clang writes them for BPF.
    fn target(&self, work: &Path) -> Result<Vec<String>> {
        let bitcode = self.around(ALGORITHMS[0], work)?;
        let text = output(self.tool("llvm-dis").arg(bitcode).args(["-o", "-"]))?;
        Ok(text.lines().filter(|line| line.starts_with("target ")).map(String::from).collect())
    }

    /// The bitcode of the C around an algorithm.
    fn around(&self, name: &str, work: &Path) -> Result<PathBuf> {
        let headers = work.join("include/bpf");
        fs::create_dir_all(&headers)?;
        for (file, text) in API_HEADERS {
            fs::write(headers.join(file), text)?;
        }
        let bitcode = work.join(format!("{name}.c.bc"));
        let mut clang = Command::new("clang");
        clang.current_dir(repository().join("crates/ebpf"));
        clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
        // Its paths must be the same on every machine.
        clang.arg(format!("-ffile-prefix-map={}=.", repository().display()));
        clang.arg(format!("-DALGORITHM=forebay_{name}")).arg("-I").arg(work.join("include"));
        let source = if name == PACED { "bpf/tcp_paced.bpf.c" } else { "bpf/tcp_algorithm.bpf.c" };
        clang.args(["-emit-llvm", "-c", source, "-o"]).arg(&bitcode);
        run(&mut clang)?;
        Ok(bitcode)
    }

    /// The object of an algorithm.
    fn object(&self, name: &str, laws: &[PathBuf], work: &Path) -> Result<PathBuf> {
        let around = self.around(name, work)?;
        let [linked, inlined, object, zeroed] = ["linked.bc", "inlined.bc", "bpf.o", "zeroed.ll"]
            .map(|end| work.join(format!("{name}.{end}")));
        let mut link = self.tool("llvm-link");
        link.args(["--only-needed", "--internalize"]).arg(around).args(laws);
        run(link.arg("-o").arg(&linked))?;
        let mut opt = self.tool("opt");
        opt.arg("-passes=always-inline,default<O2>").arg(linked).arg("-o").arg(&inlined);
        run(&mut opt)?;
        self.check_complete(&inlined)?;
        let inlined = if name == PACED { self.with_zeros(&inlined, &zeroed)? } else { inlined };
        let mut llc = self.tool("llc");
        llc.args(["-march=bpfel", "-mcpu=v3", "-filetype=obj"]).arg(inlined).arg("-o").arg(&object);
        run(&mut llc)?;
        // LLVM turns code that it considers unreachable into a call of `__bpf_trap`, which kernels have from
        // 6.17 on.
        self.check_complete(&object)?;
        run(self.tool("llvm-strip").arg("--strip-debug").arg(&object))?;
        Ok(object)
    }

    /// Writes `file` with loops for its large memsets to `zeroed`.
    fn with_zeros(&self, file: &Path, zeroed: &Path) -> Result<PathBuf> {
        let text = output(self.tool("llvm-dis").arg(file).args(["-o", "-"]))?;
        fs::write(zeroed, loops_for_memsets(&text))?;
        let made = zeroed.with_extension("bc");
        let mut opt = self.tool("opt");
        run(opt.arg("-passes=always-inline").arg(zeroed).arg("-o").arg(&made))?;
        Ok(made)
    }

    /// Returns an error if `file`, bitcode or an object, calls a function that it does not contain.
    fn check_complete(&self, file: &Path) -> Result<()> {
        let missing = output(self.tool("llvm-nm").arg("--undefined-only").arg(file))?;
        let missing: Vec<&str> = missing
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            // Relocations of the kernel's fields, which the loader resolves.
            .filter(|symbol| !symbol.starts_with("llvm."))
            .collect();
        ensure!(
            missing.is_empty(),
            "it may panic, or calls functions that BPF lacks: {}; see {}",
            missing.join(", "),
            file.display()
        );
        Ok(())
    }
}

/// The IR of the crate whose files begin with `name`.
fn ir_of(deps: &Path, name: &str) -> Result<PathBuf> {
    let mut files = fs::read_dir(deps)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_it = |path: &PathBuf| {
        let file = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        file.starts_with(name) && file.ends_with(".ll")
    };
    files.find(is_it).with_context(|| format!("no {name}*.ll in {}", deps.display()))
}

/// Turns IR of rustc into IR for BPF with all functions inlined: the verifier follows calls without their types
/// only within a program.
fn for_bpf(ir: &str, target: &[String]) -> String {
    let is_target = |line: &&str| line.starts_with("target ");
    let mut text: String = target.iter().map(|line| format!("{line}\n")).collect();
    for line in ir.lines().filter(|line| !is_target(line)) {
        if line.starts_with("define ") {
            let inlined = line.replacen(" unnamed_addr", " unnamed_addr alwaysinline", 1);
            text.push_str(&inlined.replace(PERSONALITY, ""));
        } else if line.starts_with("attributes ") {
            let is_kept = |word: &&str| {
                !OF_MACHINE.iter().any(|start| word.starts_with(start)) && *word != "noinline"
            };
            text.push_str(&line.split(' ').filter(is_kept).collect::<Vec<_>>().join(" "));
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// Bytes from which on LLVM calls a function for a memset, which BPF does not have.
const MEMSET_BYTES: u64 = 1024;

/// A loop that sets bytes to zero. LLVM leaves volatile stores as they are.
const ZERO: &str = "
define internal void @forebay_zero(ptr %at, i64 %bytes) alwaysinline {
start:
  br label %step
step:
  %index = phi i64 [0, %start], [%next, %step]
  %word = getelementptr i8, ptr %at, i64 %index
  store volatile i64 0, ptr %word, align 8
  %next = add i64 %index, 8
  %is_left = icmp ult i64 %next, %bytes
  br i1 %is_left, label %step, label %end
end:
  ret void
}
";

/// Replaces the memsets of an IR that are too large for BPF: those to zero, aligned to words.
fn loops_for_memsets(ir: &str) -> String {
    let loop_for = |line: &str| {
        let (_, arguments) = line.split_once("call void @llvm.memset.p0.i64(ptr ")?;
        let (arguments, _) = arguments.split_once(", i1 false)")?;
        let (pointer, length) = arguments.split_once(", i8 0, i64 ")?;
        let bytes: u64 = length.parse().ok()?;
        let is_large =
            bytes > MEMSET_BYTES && bytes.is_multiple_of(8) && pointer.contains("align 8");
        let name = pointer.rsplit(' ').next()?;
        let place = line.split(", ").find(|part| part.starts_with("!dbg "));
        let place = place.map(|it| format!(", {it}")).unwrap_or_default();
        is_large.then(|| format!("  call void @forebay_zero(ptr {name}, i64 {bytes}){place}"))
    };
    let mut text = String::new();
    for line in ir.lines() {
        text.push_str(&loop_for(line).unwrap_or_else(|| line.to_string()));
        text.push('\n');
    }
    text + ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ir_of_this_machine_becomes_that_of_bpf() {
        let ir = "\
            target datalayout = \"e-m:e\"\n\
            target triple = \"x86_64-unknown-linux-gnu\"\n\
            define i64 @f(i64 %0) unnamed_addr #0 personality ptr @rust_eh_personality {\n\
            attributes #0 = { noinline nounwind \"probe-stack\"=\"inline-asm\" }\n";
        let target = ["target triple = \"bpf\"".to_string()];
        let expected = "\
            target triple = \"bpf\"\n\
            define i64 @f(i64 %0) unnamed_addr alwaysinline #0 {\n\
            attributes #0 = { nounwind }\n";
        assert_eq!(for_bpf(ir, &target), expected);
    }

    #[test]
    fn large_memset_becomes_a_loop() {
        let of = |bytes: u32| {
            let at = "ptr noundef align 8 dereferenceable(9) %it";
            format!(
                "  tail call void @llvm.memset.p0.i64({at}, i8 0, i64 {bytes}, i1 false), !dbg !7"
            )
        };
        let made = loops_for_memsets(&format!("{}\n{}\n", of(64), of(6472)));
        let expected =
            format!("{}\n  call void @forebay_zero(ptr %it, i64 6472), !dbg !7\n", of(64));
        assert_eq!(made, expected + ZERO);
    }

    #[test]
    fn the_objects_in_the_repository_have_their_hashes() {
        let mut hash = Command::new("sha256sum");
        hash.current_dir(repository().join(OBJECTS)).args(["--check", "--quiet", HASHES]);
        run(&mut hash).expect("made by cargo xtask bpf-algorithms");
        let hashes = fs::read_to_string(repository().join(OBJECTS).join(HASHES)).expect("hashes");
        assert!(ALGORITHMS.iter().all(|name| hashes.contains(&file(name))), "{hashes}");
    }
}
