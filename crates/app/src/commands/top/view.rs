//! The text of `forebay top`: made from the newest answers and from the keys that were pressed, and put into
//! lines of a width. Nothing here knows of a terminal.

use std::collections::BTreeMap;

use console::{Key, measure_text_width, truncate_str};
use forebay_core::bundle::NAME_MAX;
use forebay_host::daemon::explain::explain;
use forebay_host::daemon::status::{BundleStatus, Status};

use super::columns::{Column, Row};
use crate::commands::status::Answers;

/// Columns of a screen on which names and reasons need not be short.
const WIDE: usize = 140;

/// Bundles of a page.
const PAGE: isize = 20;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The screen is drawn again.
    Draw,
    /// The program ends.
    Quit,
}

/// A state of the screen.
pub struct View {
    answers: Answers,
    /// Bytes of each receivebox's bundles, and when they were reported (ns).
    before: BTreeMap<(u32, u16), (u64, u64)>,
    /// Lines of bundles in the order of the boxes.
    rows: Vec<Row>,
    /// Why the newest look failed.
    missed: Option<String>,
    sort: Column,
    is_reversed: bool,
    filter: String,
    /// The filter is being typed.
    is_typing: bool,
    selected: Option<(u32, u16)>,
    /// The selected bundle is explained, and the list is hidden.
    is_explained: bool,
}

impl View {
    /// A view without answers, sorted by this column, of bundles whose names contain `filter`.
    pub fn new(sort: Column, filter: String) -> Self {
        Self {
            answers: Answers::default(),
            before: BTreeMap::new(),
            rows: Vec::new(),
            missed: None,
            sort,
            is_reversed: false,
            filter,
            is_typing: false,
            selected: None,
            is_explained: false,
        }
    }

    /// Takes new answers.
    pub fn update(&mut self, answers: Answers) {
        let before = std::mem::take(&mut self.before);
        self.rows.clear();
        for status in &answers.boxes {
            for bundle in &status.bundles {
                let key = (status.pid, bundle.id);
                self.before.insert(key, (bundle.bytes, status.at_ns));
                let seen = before.get(&key).and_then(|before| rate(*before, status, bundle));
                self.rows.push(Row::of(status, bundle, seen));
            }
        }
        self.answers = answers;
        self.missed = None;
    }

    /// Notes that a look failed: the earlier values stay, and the screen says so.
    pub fn miss(&mut self, error: &anyhow::Error) {
        self.missed = Some(format!("{error:#}"));
    }

    /// Does the action of a key.
    pub fn press(&mut self, key: &Key) -> Act {
        if *key == Key::CtrlC {
            return Act::Quit;
        }
        if self.is_typing {
            self.type_filter(key);
            return Act::Draw;
        }
        match key {
            Key::Char('q') => return Act::Quit,
            Key::Escape if !self.is_explained => self.filter.clear(),
            Key::Escape => self.is_explained = false,
            Key::Char('s') => self.sort = self.sort.turned(1),
            Key::Char('S') => self.sort = self.sort.turned(-1),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('/') => self.is_typing = true,
            Key::Char('e') | Key::Enter => self.is_explained = !self.is_explained,
            Key::ArrowDown | Key::Char('j') => self.select(1),
            Key::ArrowUp | Key::Char('k') => self.select(-1),
            Key::PageDown => self.select(PAGE),
            Key::PageUp => self.select(-PAGE),
            Key::Home => self.select(isize::MIN),
            Key::End => self.select(isize::MAX),
            _ => {}
        }
        Act::Draw
    }

    fn type_filter(&mut self, key: &Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(letter) if !letter.is_control() => self.filter.push(*letter),
            _ => {}
        }
    }

    /// Selects the bundle `steps` lines further down.
    fn select(&mut self, steps: isize) {
        let shown = self.shown();
        if let Some(last) = shown.len().checked_sub(1) {
            let next = self.place(&shown).saturating_add_signed(steps).min(last);
            self.selected = Some(shown[next].key);
        }
    }

    /// Where the selected bundle is; the first where none was selected or it is not shown.
    fn place(&self, shown: &[&Row]) -> usize {
        shown.iter().position(|row| Some(row.key) == self.selected).unwrap_or(0)
    }

    /// The rows that pass the filter, in order.
    fn shown(&self) -> Vec<&Row> {
        let mut shown: Vec<&Row> =
            self.rows.iter().filter(|row| row.bundle.contains(&self.filter)).collect();
        shown.sort_by(|one, other| {
            let order = self.sort.order(one, other);
            if self.is_reversed { order.reverse() } else { order }
        });
        shown
    }

    /// All lines, however many.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let shown = self.shown();
        let mut lines = self.head(width);
        lines.extend(shown.iter().map(|row| line(row, ' ', width)));
        lines.extend(self.agents());
        cut(lines, width)
    }

    /// The screen: at most `height` lines of at most `width` characters.
    pub fn screen(&self, height: usize, width: usize) -> Vec<String> {
        let shown = self.shown();
        let place = self.place(&shown);
        let mut lines = self.head(width);
        let foot = [self.reason(&shown), self.keys()];
        let room = height.saturating_sub(lines.len() + foot.len());
        if self.is_explained {
            let bundle = shown.get(place).and_then(|row| self.explained(row, width));
            lines.truncate(1);
            lines.extend(bundle.unwrap_or_default().into_iter().take(room));
        } else {
            // The selected line stays in sight.
            let first = (place + 1).saturating_sub(room);
            let rows = shown.iter().enumerate().skip(first).take(room);
            lines.extend(
                rows.map(|(index, row)| line(row, if index == place { '>' } else { ' ' }, width)),
            );
            let left = room.saturating_sub(shown.len());
            lines.extend(self.agents().into_iter().take(left));
        }
        lines.resize(height.saturating_sub(foot.len()), String::new());
        lines.extend(foot);
        lines.truncate(height);
        cut(lines, width)
    }

    /// The counts and settings of the view, the conditions that do not hold, and the titles of the columns.
    fn head(&self, width: usize) -> Vec<String> {
        let (boxes, bundles) = (self.answers.boxes.len(), self.rows.len());
        let order = if self.is_reversed { ", reversed" } else { "" };
        let filter = if self.filter.is_empty() && !self.is_typing {
            String::new()
        } else {
            format!("  filter: {}{}", self.filter, if self.is_typing { "_" } else { "" })
        };
        let sort = self.sort.name();
        let mut lines = vec![format!(
            "boxes {boxes}  bundles {bundles}  Mbit/s ms kB  sort: {sort}{order}{filter}"
        )];
        for status in &self.answers.boxes {
            let dry = status.dry_run.then(|| "dry run: no rate is limited".to_string());
            let failed = status.failed_conditions.first().map(ToString::to_string);
            let said = failed.into_iter().chain(dry).map(|text| format!("{}: {text}", status.role));
            lines.extend(said);
        }
        lines.extend(self.missed.clone());
        let titles = Column::ALL.map(|column| column.name().to_string());
        lines.push(with_reason(row_of(&titles, ' ', width), "REASON", width));
        lines
    }

    fn reason(&self, shown: &[&Row]) -> String {
        match shown.get(self.place(shown)) {
            Some(row) => format!("{} {}: {}", row.bundle, row.state, row.reason),
            None if self.rows.is_empty() => String::new(),
            None => "no bundle has this text in its name: Esc shows all".into(),
        }
    }

    fn keys(&self) -> String {
        if self.is_typing {
            return "type a part of a name; Enter keeps it, Esc shows all".into();
        }
        "q quit  s S sort  r reverse  / filter  up down select  e explain".into()
    }

    /// The reasons for the rate of a bundle.
    fn explained(&self, row: &Row, width: usize) -> Option<Vec<String>> {
        let status = self.answers.boxes.iter().find(|status| status.pid == row.key.0)?;
        let bundle = status.bundles.iter().find(|bundle| bundle.id == row.key.1)?;
        let sentences = explain(status, bundle).sentences;
        Some(sentences.iter().flat_map(|sentence| wrapped(sentence, width)).collect())
    }

    /// The lines of agents, which have no bundles.
    fn agents(&self) -> Vec<String> {
        let tables: Vec<String> = self.answers.agents.iter().map(|agent| agent.table()).collect();
        let lines = tables.iter().flat_map(|table| std::iter::once("").chain(table.lines()));
        lines.map(str::to_string).collect()
    }
}

/// The rate of a bundle at a receivebox since `before`, its bytes and their time then (bits per second).
fn rate(before: (u64, u64), status: &Status, bundle: &BundleStatus) -> Option<u64> {
    let bytes = bundle.bytes.checked_sub(before.0)?;
    let span_ns = status.at_ns.checked_sub(before.1).filter(|span_ns| *span_ns > 0)?;
    Some((8e9 * bytes as f64 / span_ns as f64) as u64)
}

fn line(row: &Row, mark: char, width: usize) -> String {
    let cells = row_of(&Column::ALL.map(|column| column.cell(row)), mark, width);
    with_reason(cells, &row.reason, width)
}

/// The reason behind the other columns, where some of its words have room.
fn with_reason(cells: String, reason: &str, width: usize) -> String {
    if width > measure_text_width(&cells) + 16 { format!("{cells} {reason}") } else { cells }
}

/// Cells side by side, behind the mark of a selection. On a wide screen there is room for the longest names.
fn row_of(cells: &[String; Column::ALL.len()], mark: char, width: usize) -> String {
    let spare = if width >= WIDE { NAME_MAX - Column::Bundle.width() } else { 0 };
    let mut line = String::from(mark);
    for (place, (column, cell)) in Column::ALL.iter().zip(cells).enumerate() {
        let room = column.width() + if *column == Column::Bundle { spare } else { 0 };
        let cell = truncate_str(cell, room, "~");
        let space = " ".repeat(room.saturating_sub(measure_text_width(&cell)));
        line += if place == 0 { "" } else { " " };
        line +=
            &if column.is_words() { format!("{cell}{space}") } else { format!("{space}{cell}") };
    }
    line
}

/// A sentence in lines of at most `width` characters, where its words are no longer.
fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split(' ') {
        match lines.last_mut() {
            Some(line) if measure_text_width(line) + 1 + measure_text_width(word) <= width => {
                *line += " ";
                *line += word;
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.into()),
        }
    }
    lines
}

/// Lines of at most `width` characters. Words of other programs, such as names of devices, may hold
/// characters that move a cursor.
fn cut(lines: Vec<String>, width: usize) -> Vec<String> {
    let plain = |line: String| line.replace(|letter: char| letter.is_control(), "?");
    lines.into_iter().map(|line| truncate_str(plain(line).trim_end(), width, "~").into()).collect()
}

#[cfg(test)]
mod tests {
    use forebay_host::daemon::Role;
    use forebay_host::daemon::conditions::{FailedCondition, Fault};
    use forebay_host::daemon::status::{LastSecond, ShapingStatus, WatchingStatus};

    use super::*;

    fn bundle(name: &str, id: u16, mbit: u64) -> BundleStatus {
        let mut shaping = ShapingStatus {
            last_second: LastSecond {
                sent_bps: mbit * 1_000_000,
                delivered_bps: mbit * 900_000,
                queue_delay_ns: Some(12_300_000),
            },
            flows: Some(17),
            ..ShapingStatus::default()
        };
        shaping.decision.rate_bps = Some(mbit * 1_100_000);
        shaping.decision.min_rtt_ns = Some(50_000_000);
        shaping.decision.queue_delay_ns = Some(1_500_000);
        shaping.decision.state = "app_limited".into();
        shaping.decision.reason = "nothing waits here".into();
        shaping.queue.bytes = 45_600;
        BundleStatus { name: name.into(), id, shaping: Some(shaping), ..BundleStatus::default() }
    }

    fn answers() -> Answers {
        let bundles = vec![bundle("berlin", 1, 20), bundle("aachen", 2, 5), bundle("caen", 3, 900)];
        let sendbox = Status { bundles, pid: 7, ..Status::new(Role::Sendbox, false) };
        Answers { boxes: vec![sendbox], agents: Vec::new() }
    }

    fn view() -> View {
        let mut view = View::new(Column::Bundle, String::new());
        view.update(answers());
        view
    }

    fn names(view: &View) -> Vec<&str> {
        view.shown().iter().map(|row| &row.bundle[..]).collect()
    }

    #[test]
    fn line_shows_rates_and_queues() {
        let screen = view().screen(24, 80);
        assert_eq!(screen.len(), 24);
        assert!(screen.iter().all(|line| line.len() <= 80), "{screen:#?}");
        assert!(
            screen[1].ends_with("STATE         SENT  DELIV  LIMIT   RTT  HERE TAKEN THERE FLOWS")
        );
        let line = ">aachen         app_limited    5.0    4.5    5.5  51.5  45.6  12.3   1.5    17";
        assert!(screen[2].starts_with(line), "{screen:#?}");
        assert_eq!(screen[22], "aachen app_limited: nothing waits here");
        let wide = view().screen(24, 120);
        assert!(wide[2].ends_with(" 17 nothing waits here"), "{wide:#?}");
    }

    #[test]
    fn keys_sort_filter_select_explain_and_quit() {
        let mut view = view();
        assert_eq!(names(&view), ["aachen", "berlin", "caen"]);
        view.press(&Key::Char('s'));
        view.press(&Key::Char('s'));
        assert_eq!((view.sort, names(&view)), (Column::Sent, vec!["caen", "berlin", "aachen"]));
        view.press(&Key::Char('r'));
        assert_eq!(names(&view), ["aachen", "berlin", "caen"]);
        view.press(&Key::ArrowDown);
        assert!(view.screen(24, 80)[3].starts_with(">berlin"));
        view.press(&Key::Char('e'));
        let explained = view.screen(24, 80);
        assert_eq!(explained[1], "Packets of berlin leave at up to 22.000 Mbit/s.");
        assert!(!explained.iter().any(|line| line.ends_with('~')), "{explained:#?}");
        view.press(&Key::Escape);
        for key in ["/", "c", "a", "q"].map(|key| Key::Char(key.chars().next().unwrap())) {
            assert_eq!(view.press(&key), Act::Draw);
        }
        assert!(names(&view).is_empty() && view.screen(24, 80)[22].contains("no bundle has"));
        view.press(&Key::Backspace);
        view.press(&Key::Enter);
        assert_eq!(names(&view), ["caen"]);
        view.press(&Key::Escape);
        assert_eq!(names(&view).len(), 3);
        assert_eq!(view.press(&Key::Char('q')), Act::Quit);
        assert_eq!(view.press(&Key::CtrlC), Act::Quit);
    }

    #[test]
    fn screen_fills_and_never_exceeds_window() {
        let mut view = view();
        view.selected = Some((7, 3));
        for (height, width) in [(1, 1), (3, 10), (5, 80), (24, 40), (24, 79), (200, 500)] {
            let screen = view.screen(height, width);
            assert_eq!(screen.len(), height);
            assert!(screen.iter().all(|line| measure_text_width(line) <= width), "{screen:#?}");
        }
        assert!(view.screen(5, 80)[2].starts_with(">caen"), "the selected line stays in sight");
    }

    #[test]
    fn failures_are_shown_without_control_characters() {
        let mut view = view();
        let mut told = answers();
        let fault = Fault { found: "\x1b[2Jgone".into(), fix: "mend it".into() };
        told.boxes[0].failed_conditions =
            vec![FailedCondition { condition: "device".into(), fault }];
        view.update(told);
        view.miss(&anyhow::anyhow!("no answer on x.sock"));
        let lines = view.lines(200);
        assert!(lines[1].starts_with("sendbox: ") && lines[1].contains("?[2Jgone"), "{lines:#?}");
        assert_eq!(lines[2], "no answer on x.sock");
        view.update(answers());
        assert!(!view.lines(200).iter().any(|line| line.contains("no answer")));
    }

    #[test]
    fn receivebox_shows_rate_between_updates() {
        let at = |bytes, at_ns| {
            let watching = Some(WatchingStatus::default());
            let bundle =
                BundleStatus { name: "b".into(), bytes, watching, ..BundleStatus::default() };
            let receivebox = Status::new(Role::Receivebox, false);
            Answers {
                boxes: vec![Status { at_ns, bundles: vec![bundle], ..receivebox }],
                agents: Vec::new(),
            }
        };
        let mut view = View::new(Column::Bundle, String::new());
        view.update(at(1_000_000, 0));
        assert_eq!(view.rows[0].sent_bps, None);
        view.update(at(3_500_000, 2_000_000_000));
        assert_eq!(view.rows[0].sent_bps, Some(10_000_000));
        // One that was started again.
        view.update(at(0, 3_000_000_000));
        assert_eq!(view.rows[0].sent_bps, None);
    }

    #[test]
    fn a_column_is_named_by_its_title() {
        assert_eq!(Column::named("taken"), Ok(Column::Taken));
        assert!(Column::named("x").unwrap_err().contains("bundle, state, sent"));
        assert_eq!(Column::Bundle.turned(-1), Column::Flows);
    }

    #[test]
    fn screen_scrolls_to_selected_bundle() {
        let bundles = (0..1000).map(|id| bundle(&format!("site-{id:03}"), id, 1)).collect();
        let sendbox = Status { bundles, pid: 7, ..Status::new(Role::Sendbox, false) };
        let mut view = View::new(Column::Bundle, String::new());
        view.update(Answers { boxes: vec![sendbox], agents: Vec::new() });
        let mut selected_after = |keys: &[Key]| {
            keys.iter().for_each(|key| _ = view.press(key));
            let screen = view.screen(24, 100);
            assert_eq!(screen.len(), 24);
            screen.iter().find_map(|line| line.strip_prefix('>')).unwrap()[..8].to_string()
        };
        assert_eq!(selected_after(&[Key::PageDown, Key::PageDown, Key::ArrowDown]), "site-041");
        assert_eq!(selected_after(&[Key::End]), "site-999");
        assert_eq!(selected_after(&[Key::PageUp]), "site-979");
        assert_eq!(selected_after(&[Key::Home]), "site-000");
    }
}
