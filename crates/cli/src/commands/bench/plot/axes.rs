//! Two axes with ticks, names and a grid.

use super::scale::{self, Scale};
use super::svg::{Anchor, FAINT, INK, Stroke, Svg, width_of};

/// What is written along an axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis<'a> {
    pub(crate) scale: Scale,
    pub(crate) name: &'a str,
    /// Behind each number.
    pub(crate) unit: &'a str,
}

/// Draws them: x below, y on the left.
pub(crate) fn draw(svg: &mut Svg, x: Axis<'_>, y: Axis<'_>) {
    let (left, right) = (x.scale.start, x.scale.end);
    let (bottom, top) = (y.scale.start, y.scale.end);
    let (grid, line) = (Stroke::new(FAINT, 1.0), Stroke::new(INK, 1.0));
    let mut last = f64::NEG_INFINITY;
    for tick in x.scale.ticks() {
        let at = x.scale.place(tick);
        svg.line((at, bottom), (at, top), grid);
        let text = format!("{}{}", scale::name(tick), x.unit);
        // A name that would lie on the one before is left out.
        if at - width_of(&text) / 2.0 > last {
            svg.line((at, bottom), (at, bottom + 5.0), line);
            svg.text(at, bottom + 19.0, Anchor::Middle, INK, &text);
            last = at + width_of(&text) / 2.0;
        }
    }
    for tick in y.scale.ticks() {
        let at = y.scale.place(tick);
        svg.line((left, at), (right, at), grid);
        svg.line((left - 5.0, at), (left, at), line);
        svg.text(left - 9.0, at + 4.0, Anchor::End, INK, &format!("{}{}", scale::name(tick), y.unit));
    }
    svg.line((left, bottom), (right, bottom), line);
    svg.line((left, bottom), (left, top), line);
    svg.text(f64::midpoint(left, right), bottom + 42.0, Anchor::Middle, INK, x.name);
    svg.upright_text(left - 84.0, f64::midpoint(top, bottom), y.name);
}
