//! Writing SVG.

use std::fmt::Write;

pub(crate) const INK: &str = "#333333";
pub(crate) const FAINT: &str = "#e3e3e3";
pub(crate) const FONT_SIZE: f64 = 13.0;

/// A drawing that grows.
#[derive(Debug)]
pub(crate) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Which end of a text is where it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stroke<'a> {
    pub(crate) colour: &'a str,
    pub(crate) width: f64,
    /// Empty: it is not interrupted.
    pub(crate) dashes: &'a str,
}

impl<'a> Stroke<'a> {
    pub(crate) fn new(colour: &'a str, width: f64) -> Self {
        Self { colour, width, dashes: "" }
    }

    fn attributes(&self) -> String {
        let dashes =
            if self.dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", self.dashes) };
        format!("stroke=\"{}\" stroke-width=\"{:.1}\"{dashes}", self.colour, self.width)
    }
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        let mut svg = Self { width, height, body: String::new() };
        svg.rectangle(0.0, 0.0, width, height, "#ffffff");
        svg
    }

    pub(crate) fn rectangle(&mut self, left: f64, top: f64, width: f64, height: f64, colour: &str) {
        self.add(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    /// With stripes of that colour; all that are in one drawing have the same.
    pub(crate) fn hatched(&mut self, left: f64, top: f64, width: f64, height: f64, colour: &str) {
        if !self.body.contains("<pattern") {
            self.add(format_args!(
                "<defs><pattern id=\"hatched\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
                 patternTransform=\"rotate(45)\"><rect width=\"3\" height=\"5\" fill=\"{colour}\"/></pattern></defs>"
            ));
        }
        self.rectangle(left, top, width, height, "url(#hatched)");
    }

    pub(crate) fn circle(&mut self, x: f64, y: f64, radius: f64, colour: &str) {
        self.add(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{colour}\" stroke=\"#ffffff\"/>"
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke<'_>) {
        self.add(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" {}/>",
            from.0,
            from.1,
            to.0,
            to.1,
            stroke.attributes()
        ));
    }

    pub(crate) fn path(&mut self, points: &[(f64, f64)], stroke: Stroke<'_>) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!("<polyline points=\"{}\" fill=\"none\" {}/>", points.join(" "), stroke.attributes()));
    }

    /// With its line at that height.
    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, colour: &str, text: &str) {
        let (anchor, text) = (anchor.name(), escape(text));
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    /// From below to above, around that point.
    pub(crate) fn upright_text(&mut self, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{INK}\" \
             transform=\"rotate(-90 {x:.1} {y:.1})\">{text}</text>"
        ));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{element}");
    }

    pub(crate) fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"{FONT_SIZE:.0}\">\n{body}</svg>\n"
        )
    }
}

/// About as wide as it will be drawn; rather too wide.
pub(crate) fn width_of(text: &str) -> f64 {
    /// Part of the font's size that a character takes on average.
    const CHARACTER: f64 = 0.58;
    crate::quantity::approximate(text.chars().count() as u64) * FONT_SIZE * CHARACTER
}

/// So that it is read as text.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            character if character.is_control() => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("a<b> & \"c\"\x1b"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}");
    }

    #[test]
    fn a_drawing() {
        let mut svg = Svg::new(10.0, 20.0);
        svg.line((0.0, 1.0), (2.0, 3.0), Stroke::new("#000000", 1.0));
        svg.text(1.0, 2.0, Anchor::End, INK, "p99 < 1");
        let text = svg.finish();
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"), "{text}");
        assert!(text.contains("viewBox=\"0 0 10 20\"") && text.contains("p99 &lt; 1"), "{text}");
    }
}
