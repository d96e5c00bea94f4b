//! The tables of a configuration file. What is wrong is noted with its line and the reading goes on, so that
//! one look at a file tells all of it.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use forebay_core::spec::{Spec, SpecError, nearest, one_of};
use forebay_core::text::{HIDDEN, QUOTED_CHARS, of_parser, position, quoted};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::{Config, ConfigError, Problem};
use crate::log::foreign::plain;

/// Most problems that are told of one file: who has more mends these first.
pub(in crate::daemon) const PROBLEMS_MAX: usize = 100;

/// What is allowed in place of a text that is no TOML.
const TOML: &str = "allowed are lines like key = \"text\", key = 1, key = true and \
                    key = [\"text\", \"text\"]";

/// A file under check.
pub(super) struct Source<'a> {
    pub(super) file: &'a Path,
    text: &'a str,
    sections: &'static [&'static Section],
    /// Where the lines of the text end.
    line_ends: Vec<usize>,
    /// The file has several boxes: what is of one of them stands behind its table.
    has_several: Cell<bool>,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Source<'a> {
    /// `sections` are all that a file may have.
    pub(super) fn new(
        file: &'a Path,
        text: &'a str,
        sections: &'static [&'static Section],
    ) -> Self {
        let line_ends = text.match_indices('\n').map(|(at, _)| at).collect();
        let (has_several, problems) = (Cell::default(), RefCell::default());
        Self { file, text, sections, line_ends, has_several, problems }
    }

    /// The document; `None`: the text is no TOML, as noted.
    pub(super) fn document(&self) -> Option<DeTable<'a>> {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        let boxes = document.get_ref().get("box");
        self.has_several.set(boxes.is_some_and(|it| it.get_ref().as_array().is_some()));
        for error in errors.iter().take(PROBLEMS_MAX) {
            let message = of_parser(error.message());
            let at = error.span().map(|span| span.start);
            let shown = at.map_or_else(String::new, |at| self.shown(at));
            let text = match message.as_str() {
                "duplicate key" => format!("`{shown}` {}", self.twice()),
                message => format!("`{shown}`: {message}: {TOML}"),
            };
            let (line, column) = at.map(|at| position(self.text, at)).unzip();
            self.push(Problem { line, column, text });
        }
        errors.is_empty().then(|| document.into_inner())
    }

    /// Notes a problem: `at` is its place in the text, if it has one.
    pub(super) fn note(&self, at: Option<usize>, text: String) {
        self.push(Problem { line: at.map(|at| self.line_of(at)), column: None, text });
    }

    fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem);
        }
    }

    /// `boxes`, if nothing was wrong.
    pub(super) fn finish(self, boxes: Option<Vec<Config>>) -> Result<Vec<Config>, ConfigError> {
        let mut problems = self.problems.into_inner();
        match boxes {
            Some(boxes) if problems.is_empty() => Ok(boxes),
            _ => {
                problems.sort_by_key(|problem| problem.line);
                Err(ConfigError { file: self.file.to_owned(), problems })
            }
        }
    }

    /// Whether the file has several boxes.
    pub(super) fn has_several(&self) -> bool {
        self.has_several.get()
    }

    /// The line at `offset`, counted from 1.
    fn line_of(&self, offset: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < offset)
    }

    /// A key or table of a box, which is named as a file of one box has it, as it stands in this file.
    fn path(&self, name: &str) -> String {
        as_it_stands(self.has_several(), name)
    }

    /// What begins a table of this section in this file.
    pub(super) fn header(&self, section: &Section) -> String {
        let name = self.path(section.name);
        if self.may_begin_again(section) { format!("[[{name}]]") } else { format!("[{name}]") }
    }

    fn may_begin_again(&self, section: &Section) -> bool {
        section.is_list || self.has_several() && section.name == "box"
    }

    /// What is said of a key or table that stands in the file twice.
    fn twice(&self) -> String {
        let lists = self.sections.iter().filter(|section| self.may_begin_again(section));
        let lists: Vec<String> = lists.map(|section| self.header(section)).collect();
        format!(
            "stands here again: allowed is once in a table; delete one, or begin another {}",
            lists.join(" or ")
        )
    }

    /// What is allowed in place of a key that `section` does not have.
    fn other_than(&self, section: &Section, key: &str) -> String {
        let allowed = one_of(key, section.keys);
        let homes = self.sections.iter().filter(|other| other.keys.contains(&key));
        let homes: Vec<String> = homes.map(|home| self.header(home)).collect();
        if !homes.is_empty() {
            return format!("{allowed}; `{key}` is of {}: move it there", homes.join(" and "));
        }
        if nearest(key, section.keys).is_some() {
            return allowed;
        }
        let version = env!("CARGO_PKG_VERSION");
        format!("{allowed}; this is forebay {version}, and only a newer one may know another")
    }

    /// The line at `offset`, of which an error says that it does not parse: all of a short one, and else what stands
    /// there. What looks like a key is not shown, however little of it would be.
    fn shown(&self, offset: usize) -> String {
        let (line, column) = position(self.text, offset);
        let line = self.text.lines().nth(line - 1).unwrap_or_default();
        let from = line.get(column - 1..).filter(|_| line.trim().chars().count() > QUOTED_CHARS);
        match quoted(line) {
            hidden if hidden == HIDDEN => hidden,
            _ => plain(&quoted(from.unwrap_or(line).trim())),
        }
    }

    /// A value as it was written, as far as its first line.
    fn written(&self, span: &Range<usize>) -> &'a str {
        shortened(self.text.get(span.clone()).and_then(|text| text.lines().next()).unwrap_or("?"))
    }
}

/// A key or table of a box, which is named as a file of one box has it, as it stands in a file of one or of several.
pub(super) fn as_it_stands(has_several: bool, name: &str) -> String {
    let is_within = name.split('.').next().is_some_and(|table| !["", "box"].contains(&table));
    if has_several && is_within { format!("box.{name}") } else { name.into() }
}

/// The first 80 characters of `text`.
fn shortened(text: &str) -> &str {
    let text = text.trim();
    text.char_indices().nth(80).map_or(text, |(end, _)| &text[..end])
}

/// The first 80 characters of a value as it was read, which may hold what moves a terminal's cursor.
fn on_one_line(value: &str) -> String {
    plain(shortened(value))
}

/// What a table may hold.
pub(super) struct Section {
    /// What errors of a file of one box put before its keys; empty for the document.
    pub name: &'static str,
    /// A box may have several such tables.
    pub is_list: bool,
    pub keys: &'static [&'static str],
}

/// A table of the document.
///
/// Whatever reads a value answers `None` where it is absent or wrong; what is wrong was noted then. A `check`
/// gets the text of a value, and answers what is allowed where it refuses the text. All refuse an empty one:
/// so are a value that is no text and a key that must not be absent told.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    source: &'a Source<'a>,
    section: &'static Section,
    entries: &'a DeTable<'a>,
    /// Where the table begins.
    at: usize,
}

impl<'a> Table<'a> {
    pub(super) fn open(
        source: &'a Source<'a>,
        section: &'static Section,
        entries: &'a DeTable<'a>,
        at: usize,
    ) -> Self {
        let table = Self { source, section, entries, at };
        for (key, value) in entries {
            if !section.keys.contains(&key.get_ref().as_ref()) {
                let name = table.path(source.written(&key.span()));
                let written = source.written(&value.span());
                let allowed = source.other_than(section, key.get_ref());
                let text = format!("{name} = {written}: no such key: allowed is {allowed}");
                source.note(Some(key.span().start), text);
            }
        }
        table
    }

    /// A key of this table as it stands in the file.
    fn path(&self, key: &str) -> String {
        match self.section.name {
            "" => key.into(),
            name => format!("{}.{key}", self.source.path(name)),
        }
    }

    /// What begins a table of this section in the file.
    pub(super) fn header(&self, section: &Section) -> String {
        self.source.header(section)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the value of `key` is a list.
    pub(super) fn is_list(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.get_ref().as_array().is_some())
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        debug_assert!(self.section.keys.contains(&key), "{}", self.path(key));
        self.entries.get(key)
    }

    /// Notes that the value of `key`, or its absence, is not `allowed`.
    pub(super) fn wrong(&self, key: &str, allowed: impl Display) {
        match self.value(key) {
            Some(value) => self.refuse(key, value.span(), allowed),
            None => {
                let key = self.path(key);
                self.source.note(Some(self.at), format!("{key} is missing: allowed is {allowed}"));
            }
        }
    }

    fn refuse(&self, key: &str, span: Range<usize>, allowed: impl Display) {
        let (key, written) = (self.path(key), self.source.written(&span));
        self.source.note(Some(span.start), format!("{key} = {written}: allowed is {allowed}"));
    }

    /// Notes of `key`, which may have a value, what is wrong with that and with others.
    pub(super) fn note(&self, key: &str, what: impl Display) {
        let at = self.value(key).map_or(self.at, |value| value.span().start);
        self.source.note(Some(at), format!("{}: {what}", self.path(key)));
    }

    /// Notes that there are `count` tables of a section here, other than is `allowed`; where one is too many, `at` it.
    pub(super) fn wrong_count(
        &self,
        section: &Section,
        count: usize,
        at: Option<&Self>,
        allowed: impl Display,
    ) {
        let (at, header) = (at.unwrap_or(self).at, self.header(section));
        self.source.note(Some(at), format!("{count} {header} tables: allowed are {allowed}"));
    }

    /// The line of a value of this table, or of a table in it, such as `uplink.rate`.
    pub(super) fn line(&self, path: &str) -> Option<usize> {
        let mut keys = path.split('.');
        let first = self.entries.get(keys.next()?)?;
        let value = keys.try_fold(first, |value, key| value.get_ref().as_table()?.get(key))?;
        Some(self.source.line_of(value.span().start))
    }

    /// Notes that the text at `place` in the list of `key` is not `allowed`.
    pub(super) fn wrong_element(&self, key: &str, place: usize, allowed: impl Display) {
        let list = self.value(key).and_then(|value| value.get_ref().as_array());
        if let Some(element) = list.and_then(|list| list.get(place)) {
            self.refuse(key, element.span(), allowed);
        }
    }

    /// A text that must be there.
    pub(super) fn required<T>(
        &self,
        key: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        check(text(self.value(key))).map_err(|allowed| self.wrong(key, allowed)).ok()
    }

    /// A text that may be there.
    pub(super) fn optional<T>(
        &self,
        key: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.has(key).then(|| self.required(key, check)).flatten()
    }

    /// What `check` makes of each text of a list, in its place; of a value that is no list, one that is wrong.
    pub(super) fn list<T>(
        &self,
        key: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<Option<T>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            self.wrong(key, format!("a list: {}", check("").err().unwrap_or_default()));
            return vec![None];
        };
        let element = |element: &'a Spanned<DeValue<'a>>| {
            let refuse = |allowed| self.refuse(key, element.span(), allowed);
            check(text(Some(element))).map_err(refuse).ok()
        };
        list.iter().map(element).collect()
    }

    /// What `check` makes of a text that must be there, or of each of a list of texts in its place.
    pub(super) fn one_or_list<T>(
        &self,
        key: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<Option<T>> {
        if self.is_list(key) { self.list(key, check) } else { vec![self.required(key, check)] }
    }

    /// `true` or `false`.
    pub(super) fn switch(&self, key: &str) -> Option<bool> {
        let switch = self.value(key)?.get_ref().as_bool();
        if switch.is_none() {
            self.wrong(key, "true or false");
        }
        switch
    }

    /// A whole number that must be there.
    pub(super) fn number(&self, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let written = self.value(key).and_then(|value| value.get_ref().as_integer());
        let number = written.and_then(|it| u32::from_str_radix(it.as_str(), it.radix()).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let allowed = format!("a whole number from {} to {}", range.start(), range.end());
            self.wrong(key, allowed);
        }
        number
    }

    /// A kind with its parameters that `check` takes.
    pub(super) fn spec(
        &self,
        key: &str,
        check: impl Fn(&Spec) -> Result<(), SpecError>,
    ) -> Option<Spec> {
        let value = self.value(key)?;
        let span = value.span();
        match Spec::deserialize(ValueDeserializer::from(value.clone())) {
            Ok(spec) => match check(&spec) {
                Ok(()) => Some(spec),
                Err(error) => {
                    // A parameter has no position of its own: it stands after the start of its table.
                    let text = self.source.text.get(span.clone());
                    let within = text.and_then(|text| text.find(&error.key)).unwrap_or(0);
                    let at = span.start + within;
                    let (parameter, value) = (on_one_line(&error.key), on_one_line(&error.value));
                    let error = SpecError::new(&parameter, &value, &error.allowed);
                    let key = self.path(key);
                    self.source.note(Some(at), format!("{key}: {error}"));
                    None
                }
            },
            Err(_) => {
                self.wrong(key, "a name or a table with `kind`, such as { kind = \"sfq\" }");
                None
            }
        }
    }

    /// The table under `key`.
    pub(super) fn table(&self, key: &str, section: &'static Section) -> Option<Table<'a>> {
        let table = self.open_one(self.value(key)?, section);
        if table.is_none() {
            self.wrong(key, format!("a table: {}", self.header(section)));
        }
        table
    }

    /// The tables under `key`, as far as they are some.
    pub(super) fn tables(&self, key: &str, section: &'static Section) -> Vec<Table<'a>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let list = value.get_ref().as_array();
        let tables: Option<Vec<_>> = list
            .and_then(|list| list.iter().map(|element| self.open_one(element, section)).collect());
        if tables.is_none() {
            self.wrong(key, format!("a list of tables: {}", self.header(section)));
        }
        tables.unwrap_or_default()
    }

    /// The table of this section, which was read before: what it may not hold is noted.
    pub(super) fn opened(&self, section: &'static Section) -> Option<Self> {
        let value = self.value(section.name)?;
        let (entries, at) = (value.get_ref().as_table()?, value.span().start);
        Some(Self { section, entries, at, ..*self })
    }

    fn open_one(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        section: &'static Section,
    ) -> Option<Table<'a>> {
        let entries = value.get_ref().as_table()?;
        Some(Table::open(self.source, section, entries, value.span().start))
    }
}

fn text<'a>(value: Option<&'a Spanned<DeValue<'a>>>) -> &'a str {
    value.and_then(|value| value.get_ref().as_str()).unwrap_or_default()
}
