//! A report page: sections of text, tables and figures, rendered to one offline HTML file.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use crate::output::number;

/// The page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Title of the window and first heading.
    pub title: String,
    /// One paragraph below it.
    pub lead: String,
    /// The sections in order.
    pub sections: Vec<PageSection>,
}

/// A heading and the blocks below it.
#[derive(Clone, Debug, Default)]
pub struct PageSection {
    /// Heading of the section.
    pub heading: String,
    /// Contents in order.
    pub blocks: Vec<Block>,
}

/// One element of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A table.
    Table(PageTable),
    /// Metrics of compared sides.
    Metrics(MetricTable),
    /// Results before and after.
    Tiles(Vec<Tile>),
    /// A figure.
    Figure(Chart),
    /// A figure that the report adds to the plan's own.
    Added(Chart),
    /// Preformatted text under its title; several lines are folded away.
    Details {
        /// Text to click on.
        title: String,
        /// The text.
        text: String,
    },
    /// A paragraph that links to another file.
    Link {
        /// Text to click on.
        text: String,
        /// The path of the file, relative to the page.
        to: String,
    },
}

/// A table. Columns of numbers are right-aligned, all other columns left-aligned.
#[derive(Clone, Debug, Default)]
pub struct PageTable {
    /// Column titles, with the unit.
    pub columns: Vec<String>,
    /// Rows of cells.
    pub rows: Vec<Vec<String>>,
    /// The caption below the table.
    pub caption: String,
}

/// Metrics of compared sides: a row for each metric, a column for each side.
#[derive(Clone, Debug, Default)]
pub struct MetricTable {
    /// Labels of the sides.
    pub sides: Vec<String>,
    /// Rows of metrics.
    pub rows: Vec<MetricRow>,
    /// The caption below the table.
    pub caption: String,
}

/// A metric of compared sides.
#[derive(Clone, Debug, Default)]
pub struct MetricRow {
    /// The cell and the part of the run; empty: all of a run.
    pub of: String,
    /// Title with the unit.
    pub title: String,
    /// Name, and definition, shown on demand.
    pub name: String,
    /// Whether greater numbers are better; `None`: neither end is.
    pub higher: Option<bool>,
    /// For each side the number, and its text, with its range in a second line.
    pub numbers: Vec<Option<(f64, String)>>,
}

/// A metric before and after.
#[derive(Clone, Debug, Default)]
pub struct Tile {
    /// Title in words.
    pub title: String,
    /// Name, and definition, shown on demand.
    pub name: String,
    /// Both values with their unit.
    pub values: [String; 2],
    /// Change with its sign.
    pub change: String,
    /// Spread of the change.
    pub spread: String,
    /// Whether the change is an improvement; `None`: neither that nor a loss.
    pub better: Option<bool>,
}

/// A Vega-Lite document with a caption.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The caption: the point of the figure.
    pub caption: String,
    /// The document.
    pub spec: Value,
}

/// Longest text of a table cell, in characters, that stays on one line.
const LINE_MAX: usize = 40;
/// How the text on a rejected run begins, and on an arm without a valid run.
pub const REJECTED: &str = "rejected";
/// Style sheet of a page.
const STYLE: &str = include_str!("style.css");
/// Scripts that draw the figures of a page, in the order of their dependencies.
const SCRIPTS: [&str; 3] = [
    include_str!("../../assets/vega.min.js"),
    include_str!("../../assets/vega-lite.min.js"),
    include_str!("../../assets/vega-embed.min.js"),
];

/// Draws every figure as wide as the page allows, with links to save it. A failure is shown in place of the
/// figure and marks the page, for tests and readers.
const DRAW: &str = include_str!("draw.js");
/// For readers whose browser runs no scripts.
const NOTE: &str = "<noscript><p class=\"note\">The figures need JavaScript. Results and tables \
                    do not.</p></noscript>\n";
/// With more entries the table of contents is folded.
const CONTENTS_OPEN: usize = 40;

/// Anchors given so far, and the entries of the table of contents.
#[derive(Default)]
struct Anchors {
    used: BTreeSet<String>,
    figures: usize,
    tables: usize,
    contents: Vec<(usize, String, String)>,
}

impl Anchors {
    /// An unused anchor made from `text`.
    fn slug(&mut self, text: &str) -> String {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
        let base = words.take(12).collect::<Vec<_>>().join("-").to_lowercase();
        let mut name = base.clone();
        for number in 2.. {
            if self.used.insert(name.clone()) {
                break;
            }
            name = format!("{base}-{number}");
        }
        name
    }

    /// Adds an entry of this depth; returns its anchor.
    fn enter(&mut self, depth: usize, anchor: &str, text: &str) -> String {
        let anchor = self.slug(anchor);
        let entry = text.split(". ").next().unwrap_or_default().trim_end_matches('.').to_string();
        self.contents.push((depth, anchor.clone(), entry));
        anchor
    }

    /// The table of contents.
    fn contents(&self) -> String {
        let open = if self.contents.len() > CONTENTS_OPEN { "" } else { " open" };
        let entry = |(depth, anchor, text): &(usize, String, String)| {
            format!("<li class=\"depth-{depth}\"><a href=\"#{anchor}\">{}</a></li>\n", escape(text))
        };
        let entries: String = self.contents.iter().map(entry).collect();
        format!(
            "<nav><details{open}><summary>Contents</summary>\n<ul>\n{entries}</ul></details></nav>\n"
        )
    }
}

impl Page {
    /// The whole file. No reference in it makes a browser load anything.
    pub fn render(&self) -> String {
        let mut html = String::with_capacity(2 << 20);
        let title = escape(&self.title);
        let _ = write!(
            html,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n"
        );
        for script in SCRIPTS {
            let _ = writeln!(html, "<script>{script}</script>");
        }
        let lead = escape(&self.lead);
        let _ = write!(html, "</head>\n<body>\n<h1>{title}</h1>\n<p class=\"lead\">{lead}</p>\n");
        let mut anchors = Anchors::default();
        let (mut first, mut rest) = (String::new(), String::new());
        for section in &self.sections {
            // The result comes before the contents.
            let is_first = section.heading.is_empty() && rest.is_empty();
            section.render(if is_first { &mut first } else { &mut rest }, &mut anchors);
        }
        let note = if anchors.figures > 0 { NOTE } else { "" };
        let contents = anchors.contents();
        let _ = write!(
            html,
            "{first}{note}{contents}{rest}<script>{DRAW}</script>\n</body>\n</html>\n"
        );
        html
    }
}

impl PageSection {
    fn render(&self, html: &mut String, anchors: &mut Anchors) {
        html.push_str("<section>\n");
        if !self.heading.is_empty() {
            let anchor = anchors.enter(1, &self.heading, &self.heading);
            let _ = writeln!(html, "<h2 id=\"{anchor}\">{}</h2>", escape(&self.heading));
        }
        for block in &self.blocks {
            block.render(html, anchors);
        }
        html.push_str("</section>\n");
    }
}

impl Block {
    fn render(&self, html: &mut String, anchors: &mut Anchors) {
        let _ = match self {
            Self::Text(text) => writeln!(html, "<p>{}</p>", escape(text)),
            Self::Link { text, to } => {
                writeln!(html, "<p><a href=\"{}\">{}</a></p>", escape(to), escape(text))
            }
            Self::Table(table) => return table.render(html, anchors),
            Self::Metrics(table) => return table.render(html, anchors),
            Self::Tiles(tiles) => {
                let tiles: String = tiles.iter().map(Tile::html).collect();
                writeln!(html, "<div class=\"tiles\">\n{tiles}</div>")
            }
            Self::Figure(figure) | Self::Added(figure) => return figure.render(html, anchors),
            Self::Details { title, text } => {
                let open = if text.contains('\n') { "" } else { " open" };
                let (title, text) = (escape(title), escape(text));
                writeln!(
                    html,
                    "<details{open}><summary>{title}</summary><pre>{text}</pre></details>"
                )
            }
        };
    }
}

impl Tile {
    fn html(&self) -> String {
        let [name, title, change, spread, before, after] =
            [&self.name, &self.title, &self.change, &self.spread, &self.values[0], &self.values[1]]
                .map(|text| escape(text));
        let (class, word) = match self.better {
            Some(true) => (" better", "better: "),
            Some(false) => (" worse", "worse: "),
            None => ("", ""),
        };
        format!(
            "<div class=\"tile{class}\" title=\"{name}\"><h3>{title}</h3>\n\
             <p class=\"change\"><small>{word}</small>{change}</p>\n\
             <p><small>before</small> {before} <small>after</small> {after}</p>\n\
             <p class=\"spread\">{spread}</p></div>\n"
        )
    }
}

/// A cell of a row: its attributes, and its content as HTML.
type Cell = (String, String);

/// A table with this head; the text of each row makes its anchor, and its class marks it.
fn table(
    (html, anchors): (&mut String, &mut Anchors),
    caption: &str,
    head: &[Cell],
    rows: impl Iterator<Item = (String, &'static str, Vec<Cell>)>,
) {
    anchors.tables += 1;
    let name = format!("table-{}", anchors.tables);
    let entry = format!("Table {}: {caption}", anchors.tables);
    let table = anchors.enter(2, &name, &entry);
    let head: String = head.iter().map(|(of, text)| format!("<th{of}>{text}</th>")).collect();
    let _ = write!(
        html,
        "<div class=\"wide\" id=\"{table}\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
    );
    for (text, class, cells) in rows {
        let anchor = anchors.slug(&format!("{table} {text}"));
        let cells = cells.iter().map(|(of, content)| format!("<td{of}>{content}</td>"));
        let _ = writeln!(html, "<tr id=\"{anchor}\"{class}>{}</tr>", cells.collect::<String>());
    }
    let (number, caption) = (anchors.tables, escape(caption));
    let _ = writeln!(
        html,
        "</tbody></table></div>\n<p class=\"caption\">Table {number}. {caption}</p>"
    );
}

impl MetricTable {
    fn render(&self, html: &mut String, anchors: &mut Anchors) {
        let text = |text: &str| (" class=\"text\"".to_string(), escape(text));
        let has_parts = self.rows.iter().any(|row| !row.of.is_empty());
        let of = |name: &str| has_parts.then(|| (" class=\"text part\"".to_string(), escape(name)));
        let sides = self.sides.iter().map(|side| (String::new(), escape(side)));
        let head: Vec<Cell> =
            [text("metric")].into_iter().chain(of("where")).chain(sides).collect();
        let row = |row: &MetricRow| {
            let direction = match row.higher {
                Some(true) => " <small>higher is better</small>",
                Some(false) => " <small>lower is better</small>",
                None => "",
            };
            let title = (
                format!(" class=\"text metric\" title=\"{}\"", escape(&row.name)),
                escape(&row.title) + direction,
            );
            let best = row.best();
            let shown = |it: &Option<(f64, String)>| {
                let Some((value, text)) = it else { return "-".into() };
                let is_best = best == Some(number(*value));
                let (shown, range) = text.split_once('\n').unwrap_or((text, ""));
                let shown =
                    if is_best { format!("<b>{}</b>", escape(shown)) } else { escape(shown) };
                format!("{shown}<br><small>{}</small>", escape(range))
            };
            let numbers = row.numbers.iter().map(|it| (String::new(), shown(it)));
            let cells = [title].into_iter().chain(of(&row.of)).chain(numbers).collect();
            (format!("{} {}", row.of, row.title), "", cells)
        };
        table((html, anchors), &self.caption, &head, self.rows.iter().map(row));
    }
}

impl MetricRow {
    /// The best number, with the digits that are shown; `None` if all are equal or none is better.
    fn best(&self) -> Option<String> {
        let known = || self.numbers.iter().flatten().map(|it| it.0);
        let best = known().reduce(if self.higher? { f64::max } else { f64::min }).map(number);
        best.filter(|best| known().any(|it| number(it) != *best))
    }
}

impl PageTable {
    fn render(&self, html: &mut String, anchors: &mut Anchors) {
        let text: Vec<bool> = (0..self.columns.len()).map(|column| self.is_text(column)).collect();
        let cell = |(column, cell): (usize, &String)| {
            let class = match text.get(column) {
                Some(true) if cell.chars().count() > LINE_MAX => " class=\"text long\"",
                Some(true) => " class=\"text\"",
                _ => "",
            };
            (class.to_string(), escape(cell))
        };
        let head: Vec<Cell> = self.columns.iter().enumerate().map(cell).collect();
        let row = |row: &Vec<String>| {
            let is_rejected = row.iter().any(|cell| cell.starts_with(REJECTED));
            let class = if is_rejected { " class=\"rejected\"" } else { "" };
            let name = row.first().cloned().unwrap_or_default();
            (name, class, row.iter().enumerate().map(cell).collect())
        };
        table((html, anchors), &self.caption, &head, self.rows.iter().map(row));
    }

    /// Whether a cell of the column is neither a number nor `-`, which marks an unknown number.
    fn is_text(&self, column: usize) -> bool {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.into_iter().any(|cell| cell != "-" && cell.parse::<f64>().is_err())
    }
}

impl Chart {
    fn render(&self, html: &mut String, anchors: &mut Anchors) {
        anchors.figures += 1;
        let number = anchors.figures;
        // Inside a script element only `</` and `<!--` could end or nest it: no `<` remains.
        let spec = self.spec.to_string().replace('<', "\\u003c");
        let entry = format!("Figure {number}: {}", self.caption);
        let anchor = anchors.enter(2, &format!("figure-{number}"), &entry);
        let caption = escape(&self.caption);
        let _ = writeln!(
            html,
            "<figure id=\"{anchor}\"><div data-figure=\"figure-{number}\"></div>\
             <script type=\"application/json\" id=\"figure-{number}-data\">{spec}</script>\
             <figcaption>Figure {number}. {caption}</figcaption></figure>"
        );
    }
}

/// Text for element contents and attribute values.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_a_plan_becomes_markup() {
        let hostile = "</script><img src=x onerror=alert(1)>\"'&";
        let table = PageTable {
            columns: vec![hostile.into()],
            rows: vec![vec![hostile.into()]],
            caption: hostile.into(),
        };
        let figure =
            Chart { caption: hostile.into(), spec: serde_json::json!({ "title": hostile }) };
        let details = Block::Details { title: hostile.into(), text: hostile.into() };
        let text = || hostile.to_string();
        let row = MetricRow { of: text(), title: text(), name: text(), ..MetricRow::default() };
        let row = MetricRow { numbers: vec![Some((1.0, text()))], ..row };
        let metrics = MetricTable { sides: vec![text()], rows: vec![row], caption: text() };
        let values = [text(), text()];
        let (change, spread) = (text(), text());
        let tile = Tile { title: text(), name: text(), values, change, spread, better: None };
        let blocks = vec![Block::Text(text()), Block::Table(table), Block::Figure(figure), details];
        let added = [Block::Metrics(metrics), Block::Tiles(vec![tile])];
        let blocks = blocks.into_iter().chain(added).collect();
        let section = PageSection { heading: hostile.into(), blocks };
        let page = Page { title: hostile.into(), lead: hostile.into(), sections: vec![section] };
        let html = page.render();
        assert!(!html.contains("<img src=x"), "markup came through");
        let scripts = html.matches("</script>").count();
        assert_eq!(scripts, SCRIPTS.len() + 2, "a script element was ended early");
    }

    #[test]
    fn best_number_is_the_one_shown() {
        let best = |higher, values: &[f64]| {
            let numbers = values.iter().map(|value| Some((*value, String::new())));
            let numbers = numbers.chain([None]).collect();
            MetricRow { higher, numbers, ..MetricRow::default() }.best()
        };
        assert_eq!(best(Some(false), &[2.0, 1.0, 1.0004]), Some("1".into()));
        assert_eq!(best(Some(true), &[2.0, 1.0]), Some("2".into()));
        assert_eq!(best(Some(true), &[2.0, 2.0]), None);
        assert_eq!(best(None, &[2.0, 1.0]), None);
    }

    #[test]
    fn columns_of_words_are_left_aligned() {
        let row = |cells: [&str; 3]| cells.map(str::to_string).to_vec();
        let table = PageTable {
            columns: row(["arm", "p50", "verdict"]),
            rows: vec![row(["a", "1.5", "valid"]), row(["b", "-", "2"])],
            caption: String::new(),
        };
        assert_eq!([0, 1, 2].map(|column| table.is_text(column)), [true, false, true]);
    }

    #[test]
    fn scripts_are_the_ones_noted_in_the_assets() {
        use sha2::{Digest, Sha256};
        let notes = include_str!("../../assets/README.md");
        for script in SCRIPTS {
            assert!(!script.contains("</script"), "would end its element");
            let digest = Sha256::digest(script.as_bytes());
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(notes.contains(&hex), "assets/README.md lacks {hex}");
        }
    }
}
