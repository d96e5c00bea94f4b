//! Numbers of the control loop of a bundle, so that their count can be bounded: the fields of its table of tuning, and
//! the numbers in the code that observes and decides. Numbers of messages, keys and replay are listed apart.

mod numbers;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use forebay_core::bundle::tuning::Tuning;
use serde::Serialize;

use crate::{Misuse, repository};
use numbers::Number;

/// Modules of the control loop: each is a file `X.rs`, a folder `X`, or both.
const MODULES: [&str; 2] = ["crates/core/src/bundle/control", "crates/core/src/bundle/path"];
/// Modules whose numbers belong to a format: messages, keys and replay, and the sampled headers.
const APART: [&str; 3] = [
    "crates/core/src/bundle/protocol",
    "crates/core/src/bundle/path/sample",
    "crates/core/src/bundle/path/segments",
];

/// Options of a call.
#[derive(Debug, Default, PartialEq)]
struct Options {
    form: Form,
    at_most: Option<usize>,
}

/// How numbers are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Form {
    /// Counts by file.
    #[default]
    Table,
    /// Each number in a line.
    List,
    Json,
}

/// The numbers of one file.
struct File {
    /// Path from the repository.
    path: String,
    numbers: Vec<Number>,
}

/// All numbers of the control loop.
struct Numbers {
    /// Fields of the table of tuning.
    fields: usize,
    files: Vec<File>,
    /// Not counted.
    apart: Vec<File>,
}

impl Numbers {
    fn read(root: &Path) -> Result<Self> {
        let [mut files, mut apart] = [Vec::new(), Vec::new()];
        for module in MODULES {
            read_module(root, module, &mut files)?;
        }
        files.retain(|file| !APART.iter().any(|module| file.path.starts_with(module)));
        for module in APART {
            read_module(root, module, &mut apart)?;
        }
        Ok(Self { fields: Tuning::PARAMS.len(), files, apart })
    }

    fn total(&self) -> usize {
        self.fields + self.files.iter().map(|file| file.numbers.len()).sum::<usize>()
    }
}

/// Prints the numbers of the control loop in the form that `arguments` request. Fails where there are more than
/// `--at-most N`.
pub fn count(arguments: &[String]) -> Result<()> {
    let Options { form, at_most } = parse(arguments).map_err(Misuse::of)?;
    let numbers = Numbers::read(&repository())?;
    let text = match form {
        Form::Table => table(&numbers),
        Form::List => list(&numbers),
        Form::Json => json(&numbers)?,
    };
    print!("{text}");
    judge(numbers.total(), at_most)
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let form = match argument.as_str() {
            "--list" => Form::List,
            "--json" => Form::Json,
            "--at-most" => {
                let value =
                    rest.next().context("--at-most: no value: allowed is a whole number")?;
                let refusal = || format!("--at-most {value}: allowed is a whole number");
                options.at_most = Some(value.parse().with_context(refusal)?);
                continue;
            }
            other => bail!("{other}: allowed is --list or --json, and --at-most N"),
        };
        let is_one = [Form::Table, form].contains(&options.form);
        ensure!(is_one, "--list and --json: allowed is one or the other");
        options.form = form;
    }
    Ok(options)
}

fn judge(total: usize, at_most: Option<usize>) -> Result<()> {
    let above = total.saturating_sub(at_most.unwrap_or(total));
    ensure!(above == 0, "{total} numbers: {above} more than --at-most allows");
    Ok(())
}

/// Adds the files of a module, which is a path from `root` without `.rs`.
fn read_module(root: &Path, module: &str, files: &mut Vec<File>) -> Result<()> {
    let [file, folder] = [format!("{module}.rs"), module.to_owned()];
    let [is_file, is_folder] = [&file, &folder].map(|path| root.join(path).exists());
    ensure!(is_file || is_folder, "{module}: neither a file nor a folder");
    if is_file {
        read_file(root, file, files)?;
    }
    if is_folder {
        read_folder(root, &folder, files)?;
    }
    Ok(())
}

/// Adds the Rust files below `folder`, each before its own folder, tests left out.
fn read_folder(root: &Path, folder: &str, files: &mut Vec<File>) -> Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_by_cached_key(|name| {
        let stem = name.strip_suffix(".rs");
        (stem.unwrap_or(name).to_owned(), stem.is_none())
    });
    for name in names {
        let path = format!("{folder}/{name}");
        if name == "tests" || name == "tests.rs" {
            continue;
        } else if root.join(&path).is_dir() {
            read_folder(root, &path, files)?;
        } else if name.ends_with(".rs") {
            read_file(root, path, files)?;
        }
    }
    Ok(())
}

fn read_file(root: &Path, path: String, files: &mut Vec<File>) -> Result<()> {
    let source = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
    let numbers = numbers::of(&source).with_context(|| path.clone())?;
    files.push(File { path, numbers });
    Ok(())
}

/// Counts of one file.
#[derive(Serialize)]
struct Counted<'a> {
    path: &'a str,
    /// Numbers of constants.
    named: usize,
    /// Numbers without a name.
    bare: usize,
}

impl<'a> From<&'a File> for Counted<'a> {
    fn from(file: &'a File) -> Self {
        let named = file.numbers.iter().filter(|it| it.name.is_some()).count();
        Self { path: &file.path, named, bare: file.numbers.len() - named }
    }
}

fn table(numbers: &Numbers) -> String {
    let Numbers { fields, files, apart } = numbers;
    let row = |Counted { path, named, bare }: Counted| {
        format!("| {path} | {named} | {bare} | {} |\n", named + bare)
    };
    let sum = |path, files: &[File]| {
        let counted = files.iter().map(Counted::from);
        counted.fold(Counted { path, named: 0, bare: 0 }, |sum, it| Counted {
            named: sum.named + it.named,
            bare: sum.bare + it.bare,
            ..sum
        })
    };
    let tuning = Counted { path: "fields of `Tuning`", named: *fields, bare: 0 };
    let total = sum("total", files);
    let total = Counted { named: total.named + fields, ..total };
    let mut text = "| file | of constants | bare | sum |\n|---|---|---|---|\n".to_owned();
    let counted = files.iter().map(Counted::from);
    text.extend([tuning].into_iter().chain(counted).chain([total]).map(row));
    let formats = apart.iter().map(Counted::from).chain([sum("formats, not counted", apart)]);
    text.extend(formats.map(row));
    text
}

fn list(numbers: &Numbers) -> String {
    let mut text = String::new();
    for param in Tuning::PARAMS.iter().take(numbers.fields) {
        let default = param.written_default().unwrap_or_default();
        text += &format!("Tuning::{} = {default}\n", param.name());
    }
    for (files, suffix) in [(&numbers.files, ""), (&numbers.apart, "  (format)")] {
        for File { path, numbers } in files {
            for number in numbers {
                text += &format!("{path}:{number}{suffix}\n");
            }
        }
    }
    text
}

fn json(numbers: &Numbers) -> Result<String> {
    #[derive(Serialize)]
    struct All<'a> {
        total: usize,
        fields: usize,
        files: Vec<Counted<'a>>,
        apart: Vec<Counted<'a>>,
    }
    let [files, apart] =
        [&numbers.files, &numbers.apart].map(|files| files.iter().map(Counted::from).collect());
    let all = All { total: numbers.total(), fields: numbers.fields, files, apart };
    Ok(serde_json::to_string(&all)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &str) -> Result<Options> {
        parse(&arguments.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    /// The files of a module `loop` of these files.
    fn files(sources: &[(&str, &str)]) -> Result<Vec<File>> {
        let folder = tempfile::tempdir().unwrap();
        for (name, source) in sources {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, source).unwrap();
        }
        let mut files = Vec::new();
        read_module(folder.path(), "loop", &mut files)?;
        Ok(files)
    }

    #[test]
    fn arguments_are_a_form_and_a_bound() {
        let of = |form, at_most| Options { form, at_most };
        assert_eq!(parsed("").unwrap(), of(Form::Table, None));
        assert_eq!(parsed("--at-most 40 --json").unwrap(), of(Form::Json, Some(40)));
        assert_eq!(parsed("--list").unwrap(), of(Form::List, None));
        for wrong in ["all", "--at-most", "--at-most few", "--at-most -1", "--list --json"] {
            assert!(parsed(wrong).unwrap_err().to_string().contains("allowed is"), "{wrong}");
        }
    }

    #[test]
    fn what_is_above_the_bound_is_said() {
        assert!(judge(40, None).is_ok() && judge(40, Some(40)).is_ok());
        let error = judge(43, Some(40)).unwrap_err().to_string();
        assert_eq!(error, "43 numbers: 3 more than --at-most allows");
    }

    #[test]
    fn a_module_is_its_file_and_its_folder() {
        let found = files(&[
            ("loop.rs", "const A: u8 = 3;"),
            ("loop/b/c.rs", ""),
            ("loop/b.rs", ""),
            ("loop/a/mod.rs", ""),
            ("loop/tests.rs", "const A: u8 = 3;"),
            ("loop/a/tests/more.rs", "const A: u8 = 3;"),
            ("loop/notes.md", "3"),
            ("loops.rs", "const A: u8 = 3;"),
        ]);
        let found: Vec<String> = found.unwrap().into_iter().map(|it| it.path).collect();
        assert_eq!(found, ["loop.rs", "loop/a/mod.rs", "loop/b.rs", "loop/b/c.rs"]);
        assert!(files(&[("loops.rs", "")]).is_err());
    }

    #[test]
    fn a_file_that_is_no_rust_is_named() {
        let error = files(&[("loop.rs", "const")]).err().unwrap();
        assert_eq!(error.to_string(), "loop.rs");
    }

    #[test]
    fn each_form_has_every_number() {
        let source = "const A: u8 = 3;\nfn f() { g(4, 5) }";
        let files = files(&[("loop.rs", source), ("loop/b.rs", "")]).unwrap();
        let apart = self::files(&[("loop.rs", "const KEY: usize = 32;")]).unwrap();
        let numbers = Numbers { fields: 1, files, apart };
        assert_eq!(numbers.total(), 4);
        assert_eq!(
            table(&numbers),
            "| file | of constants | bare | sum |\n|---|---|---|---|\n\
             | fields of `Tuning` | 1 | 0 | 1 |\n| loop.rs | 1 | 2 | 3 |\n\
             | loop/b.rs | 0 | 0 | 0 |\n| total | 2 | 2 | 4 |\n\
             | loop.rs | 1 | 0 | 1 |\n| formats, not counted | 1 | 0 | 1 |\n"
        );
        let name = Tuning::PARAMS[0].name();
        let default = Tuning::PARAMS[0].written_default().unwrap();
        assert_eq!(
            list(&numbers),
            format!(
                "Tuning::{name} = {default}\nloop.rs:1  A = 3\nloop.rs:2  bare 4\nloop.rs:2  bare 5\n\
                 loop.rs:1  KEY = 32  (format)\n"
            )
        );
        assert_eq!(
            json(&numbers).unwrap(),
            "{\"total\":4,\"fields\":1,\"files\":[{\"path\":\"loop.rs\",\"named\":1,\"bare\":2},\
             {\"path\":\"loop/b.rs\",\"named\":0,\"bare\":0}],\
             \"apart\":[{\"path\":\"loop.rs\",\"named\":1,\"bare\":0}]}\n"
        );
    }

    #[test]
    fn every_module_of_the_loop_is_there() {
        let Numbers { fields, files, apart } = Numbers::read(&repository()).unwrap();
        assert!(fields > 0 && files.len() > MODULES.len() && apart.len() > APART.len());
        assert!(files.iter().chain(&apart).all(|file| !file.path.ends_with("tests.rs")));
    }
}
