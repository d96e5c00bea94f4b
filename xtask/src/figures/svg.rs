//! A writer of SVG: text stays text, and colours follow the scheme of the reader's browser.

use std::fmt::Write as _;

/// Width of each picture (px).
pub const WIDTH: f64 = 720.0;
/// Height of each picture (px).
pub const HEIGHT: f64 = 400.0;
/// Colours by class, for light and for dark pages.
const STYLE: &str = include_str!("style.css");
/// Ticks of a linear axis, about.
const TICKS: f64 = 5.0;
/// Length of a decade (px) that has room for ticks at 1, 2 and 5.
const DECADE: f64 = 85.0;
/// Length of a decade (px) that has room for a tick at all.
const DECADE_MIN: f64 = 30.0;

/// An axis: values between two ends, and the pixels where these are.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    ends: [f64; 2],
    pixels: [f64; 2],
    is_log: bool,
}

impl Scale {
    /// Equal differences are equal lengths.
    pub fn linear(ends: [f64; 2], pixels: [f64; 2]) -> Self {
        Self { ends, pixels, is_log: false }
    }

    /// Equal ratios are equal lengths; the ends are above 0.
    pub fn log(ends: [f64; 2], pixels: [f64; 2]) -> Self {
        Self { ends, pixels, is_log: true }
    }

    /// The pixel of `value`; of the nearer end if it lies beyond.
    pub fn at(&self, value: f64) -> f64 {
        let [low, high] = self.ends;
        let value = value.clamp(low.min(high), low.max(high));
        let share = match self.is_log {
            true => (value / low).ln() / (high / low).ln(),
            false => (value - low) / (high - low),
        };
        self.pixels[0] + share * (self.pixels[1] - self.pixels[0])
    }

    /// Values with a tick.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = (self.ends[0].min(self.ends[1]), self.ends[0].max(self.ends[1]));
        let is_within = |it: &f64| *it >= low * (1.0 - 1e-9) && *it <= high * (1.0 + 1e-9);
        if self.is_log {
            let first = low.log10().floor() as i32;
            let last = high.log10().ceil() as i32;
            let length = (self.pixels[1] - self.pixels[0]).abs() / (high / low).log10();
            let steps: &[f64] = if length < DECADE { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let decade = |power: i32| steps.iter().map(move |step| step * 10_f64.powi(power));
            let every = if length < DECADE_MIN { 2 } else { 1 };
            let powers = (first..=last).filter(|power| power % every == 0);
            return powers.flat_map(decade).filter(is_within).collect();
        }
        let step = step_of(high - low);
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (first..=last).map(|count| count as f64 * step).collect()
    }
}

/// Distance of ticks that are 1, 2 or 5 times a power of ten.
fn step_of(range: f64) -> f64 {
    let rough = range / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    power * steps.into_iter().find(|step| step * power >= rough * 0.8).unwrap_or(10.0)
}

/// Ends of an axis from 0 on that has room for `greatest`.
pub fn from_zero(greatest: f64) -> [f64; 2] {
    let step = step_of(greatest);
    [0.0, (greatest / step).ceil() * step]
}

/// Ends of a logarithmic axis: steps of 1, 2 and 5 around the positive ones of `values`.
pub fn around(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for value in values.filter(|value| *value > 0.0) {
        (low, high) = (low.min(value), high.max(value));
    }
    let steps = |value: f64| {
        let power = 10_f64.powf(value.log10().floor());
        [1.0, 2.0, 5.0, 10.0].map(|step| step * power)
    };
    let below = steps(low).into_iter().rev().find(|step| *step <= low);
    let above = steps(high).into_iter().find(|step| *step >= high);
    [below.unwrap_or(low), above.unwrap_or(high)]
}

/// A picture that is being drawn.
pub struct Picture {
    title: String,
    /// The result in a sentence, which pages use as text instead of the picture.
    pub result: String,
    body: String,
}

impl Picture {
    /// A picture with a title, the conditions below it, and the result for readers who do not see it.
    pub fn new(title: &str, conditions: &str, result: String) -> Self {
        let mut picture = Self { title: title.into(), result, body: String::new() };
        picture.text("head", [16.0, 27.0], title);
        picture.text("soft", [16.0, 46.0], conditions);
        picture
    }

    /// Text at a point.
    pub fn text(&mut self, class: &str, [x, y]: [f64; 2], text: &str) {
        let (x, y, text) = (short(x), short(y), escaped(text));
        self.put(&format!(r#"<text class="{class}" x="{x}" y="{y}">{text}</text>"#));
    }

    /// Text from the bottom to the top.
    fn upright(&mut self, class: &str, [x, y]: [f64; 2], text: &str) {
        let (x, y, text) = (short(x), short(y), escaped(text));
        self.put(&format!(
            r#"<text class="{class}" transform="translate({x} {y}) rotate(-90)">{text}</text>"#
        ));
    }

    /// Lines from point to point.
    pub fn path(&mut self, class: &str, points: impl IntoIterator<Item = [f64; 2]>) {
        let points = points.into_iter().map(|[x, y]| format!("{} {}", short(x), short(y)));
        let points: Vec<String> = points.collect();
        self.put(&format!(r#"<path class="{class}" d="M{}"/>"#, points.join("L")));
    }

    /// A disc or a ring.
    pub fn circle(&mut self, class: &str, [x, y]: [f64; 2], radius: f64) {
        let [x, y, radius] = [x, y, radius].map(short);
        self.put(&format!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}"/>"#));
    }

    /// A rectangle whose text shows when it is pointed at.
    pub fn rect(&mut self, class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2], text: &str) {
        let [x, y, width, height] = [x, y, width, height].map(short);
        let start =
            format!(r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}""#);
        match text {
            "" => self.put(&(start + "/>")),
            text => self.put(&format!("{start}><title>{}</title></rect>", escaped(text))),
        }
    }

    /// Grid, ticks and titles of two axes; an empty title is left out.
    pub fn axes(&mut self, x: &Scale, y: &Scale, [x_title, y_title]: [&str; 2]) {
        let [left, right] = x.pixels;
        for tick in y.ticks() {
            let at = y.at(tick);
            self.path("grid", [[left, at], [right, at]]);
            self.text("soft end", [left - 7.0, at + 4.0], &shown(tick));
        }
        self.x_axis(x, y.pixels, x_title);
        if !y_title.is_empty() {
            let middle = (y.pixels[0] + y.pixels[1]) / 2.0;
            self.upright("middle", [left - 46.0, middle], y_title);
        }
    }

    /// Grid, ticks and title of an axis between the heights where the grid begins and ends.
    pub fn x_axis(&mut self, x: &Scale, [bottom, top]: [f64; 2], title: &str) {
        for tick in x.ticks() {
            let at = x.at(tick);
            self.path("grid", [[at, bottom], [at, top]]);
            self.text("soft middle", [at, bottom + 16.0], &shown(tick));
        }
        if !title.is_empty() {
            let middle = (x.pixels[0] + x.pixels[1]) / 2.0;
            self.text("middle", [middle, bottom + 34.0], title);
        }
    }

    /// Names of lines side by side, each behind a piece of its line.
    pub fn legend(&mut self, [mut x, y]: [f64; 2], names: &[(&str, &str)]) {
        for (class, name) in names {
            self.path(&format!("line {class}"), [[x, y - 4.0], [x + 20.0, y - 4.0]]);
            self.text("", [x + 26.0, y], name);
            x += 46.0 + 6.4 * name.len() as f64;
        }
    }

    fn put(&mut self, element: &str) {
        self.body += element;
        self.body.push('\n');
    }

    /// The file.
    pub fn finish(&self) -> String {
        let (title, result) = (escaped(&self.title), escaped(&self.result));
        let mut text = String::new();
        writeln!(
            text,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title desc">"#
        )
        .expect("a string");
        text += &format!(
            "<title id=\"title\">{title}</title>\n<desc id=\"desc\">{result}</desc>\n<style>\n{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n{}</svg>\n",
            self.body
        );
        text
    }
}

/// A length with at most one decimal.
fn short(length: f64) -> String {
    let tenths = (length * 10.0).round() / 10.0;
    // Zero has no sign.
    format!("{}", tenths + 0.0)
}

/// A value at a tick.
fn shown(value: f64) -> String {
    let digits =
        if value.abs() >= 1e-9 { (2.0 - value.abs().log10().floor()).max(0.0) } else { 0.0 };
    let text = format!("{value:.*}", digits as usize);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let (whole, _) = text.split_once('.').unwrap_or((text, ""));
    match whole.len() {
        5.. => format!("{},{}", &whole[..whole.len() - 3], &whole[whole.len() - 3..]),
        _ => text.into(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_the_ends_of_their_axis() {
        let linear = Scale::linear([0.0, 10.0], [100.0, 200.0]);
        assert_eq!([-1.0, 0.0, 5.0, 11.0].map(|it| linear.at(it)), [100.0, 100.0, 150.0, 200.0]);
        let reversed = Scale::log([100.0, 1.0], [0.0, 100.0]);
        assert_eq!([1000.0, 10.0, 0.0].map(|it| reversed.at(it).round()), [0.0, 50.0, 100.0]);
    }

    #[test]
    fn ticks_are_round_numbers() {
        let linear = Scale::linear([0.0, 1200.0], [0.0, 200.0]);
        assert_eq!(linear.ticks(), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0, 1200.0]);
        let log = |ends| Scale::log(ends, [0.0, 200.0]).ticks();
        assert_eq!(log([20.0, 500.0]), [20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(log([0.1, 100.0]), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(from_zero(1113.0), [0.0, 1200.0]);
        assert_eq!(around([0.0, 3.0, 70.0].into_iter()), [2.0, 100.0]);
        assert_eq!(
            [0.0, 0.05, 1.5, 12.0, 20_000.0].map(shown),
            ["0", "0.05", "1.5", "12", "20,000"]
        );
    }

    #[test]
    fn text_is_escaped() {
        let picture = Picture::new("a < b", "c & d", "e > f".into()).finish();
        for escaped in ["a &lt; b</title>", "c &amp; d</text>", "e &gt; f</desc>"] {
            assert!(picture.contains(escaped), "{picture}");
        }
    }
}
