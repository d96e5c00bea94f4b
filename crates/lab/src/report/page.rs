//! A report page: sections of text, tables and figures, rendered to one offline HTML file.

use std::fmt::Write;

use serde_json::Value;

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
    /// A figure.
    Figure(Chart),
    /// Preformatted text, folded away under its title.
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
const DRAW: &str = r#"
const cells = (rows) => {
  const names = [...new Set(rows.flatMap(Object.keys))];
  const cell = (it) => it === null || it === undefined ? "" : '"' + String(it).replaceAll('"', '""') + '"';
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(cell).join(",")).join("\n");
};
const fitted = (spec, room) => {
  const unit = spec.spec ?? spec;
  const { x, xOffset } = unit.encoding ?? {};
  const count = (channel) => channel ? new Set(spec.data.values.map((row) => row[channel.field])).size : 1;
  if (typeof unit.width === "number") unit.width = Math.min(unit.width, Math.max(240, room - 90));
  else if (x) unit.width.step = Math.min(unit.width.step, Math.max(12, (room - 90) / count(x) / count(xOffset)));
  if (room < 600) {
    spec.config.legend.columns = 2;
    if (x?.axis) x.axis.labelAngle = -40;
  }
  return spec;
};
const save = (name, url) => Object.assign(document.createElement("a"), { download: name, href: url }).click();
const offer = (holder, id, spec, view) => {
  const data = () => URL.createObjectURL(new Blob([cells(spec.data.values)], { type: "text/csv" }));
  const ways = { svg: () => view.toImageURL("svg"), png: () => view.toImageURL("png", 2), csv: data };
  const links = document.createElement("p");
  links.className = "save";
  links.textContent = "Save as ";
  for (const [kind, image] of Object.entries(ways)) {
    const button = document.createElement("button");
    button.textContent = kind.toUpperCase();
    button.onclick = async () => save(id + "." + kind, await image());
    links.append(button);
  }
  holder.after(links);
};
for (const holder of document.querySelectorAll("[data-figure]")) {
  const id = holder.dataset.figure;
  const spec = fitted(JSON.parse(document.getElementById(id).textContent), holder.parentElement.clientWidth);
  vegaEmbed(holder, spec, { actions: false, renderer: "svg" }).then(
    (drawn) => { offer(holder, id, spec, drawn.view); holder.dataset.drawn = "yes"; },
    (error) => { holder.dataset.drawn = "no"; holder.textContent = "figure failed: " + error; });
}
"#;

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
        let mut figures = 0;
        for section in &self.sections {
            let _ = writeln!(html, "<section>\n<h2>{}</h2>", escape(&section.heading));
            for block in &section.blocks {
                block.render(&mut html, &mut figures);
            }
            html.push_str("</section>\n");
        }
        let _ = write!(html, "<script>{DRAW}</script>\n</body>\n</html>\n");
        html
    }
}

impl Block {
    fn render(&self, html: &mut String, figures: &mut usize) {
        match self {
            Self::Text(text) => {
                let _ = writeln!(html, "<p>{}</p>", escape(text));
            }
            Self::Link { text, to } => {
                let (text, to) = (escape(text), escape(to));
                let _ = writeln!(html, "<p><a href=\"{to}\">{text}</a></p>");
            }
            Self::Table(table) => table.render(html),
            Self::Figure(figure) => {
                *figures += 1;
                figure.render(html, *figures);
            }
            Self::Details { title, text } => {
                let (title, text) = (escape(title), escape(text));
                let _ = writeln!(
                    html,
                    "<details><summary>{title}</summary><pre>{text}</pre></details>"
                );
            }
        }
    }
}

impl PageTable {
    fn render(&self, html: &mut String) {
        html.push_str("<div class=\"wide\"><table>\n<thead><tr>");
        let text: Vec<bool> = (0..self.columns.len()).map(|column| self.is_text(column)).collect();
        let class = |column: usize, cell: &str| match text.get(column) {
            Some(true) if cell.chars().count() > LINE_MAX => " class=\"text long\"",
            Some(true) => " class=\"text\"",
            _ => "",
        };
        for (column, title) in self.columns.iter().enumerate() {
            let _ = write!(html, "<th{}>{}</th>", class(column, title), escape(title));
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let _ = write!(html, "<td{}>{}</td>", class(column, cell), escape(cell));
            }
            html.push_str("</tr>\n");
        }
        let _ = writeln!(
            html,
            "</tbody></table></div>\n<p class=\"caption\">{}</p>",
            escape(&self.caption)
        );
    }

    /// Whether a cell of the column is neither a number nor `-`, which marks an unknown number.
    fn is_text(&self, column: usize) -> bool {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.into_iter().any(|cell| cell != "-" && cell.parse::<f64>().is_err())
    }
}

impl Chart {
    fn render(&self, html: &mut String, number: usize) {
        // Inside a script element only `</` and `<!--` could end or nest it: no `<` remains.
        let spec = self.spec.to_string().replace('<', "\\u003c");
        let caption = escape(&self.caption);
        let _ = writeln!(
            html,
            "<figure><div data-figure=\"figure-{number}\"></div>\
             <script type=\"application/json\" id=\"figure-{number}\">{spec}</script>\
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
        let blocks =
            vec![Block::Text(hostile.into()), Block::Table(table), Block::Figure(figure), details];
        let section = PageSection { heading: hostile.into(), blocks };
        let page = Page { title: hostile.into(), lead: hostile.into(), sections: vec![section] };
        let html = page.render();
        assert!(!html.contains("<img src=x"), "markup came through");
        let scripts = html.matches("</script>").count();
        assert_eq!(scripts, SCRIPTS.len() + 2, "a script element was ended early");
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
