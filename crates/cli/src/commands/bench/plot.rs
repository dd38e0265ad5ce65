//! The plots: what sharing costs against what it gives, how latencies are distributed, what LLM servers achieve at which load,
//! and what tenants did when.

mod axes;
mod frontier;
mod goodput;
mod labels;
mod latency;
mod scale;
mod svg;
mod timeline;

pub(crate) use svg::escape;

use super::report::Report;

/// All plots, in the order in which they are shown.
#[derive(Debug)]
pub(crate) struct Plots {
    pub(crate) all: Vec<Plot>,
}

#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) heading: &'static str,
    /// The name of its file.
    pub(crate) file: &'static str,
    pub(crate) svg: String,
}

impl Plots {
    pub(crate) fn of(report: &Report) -> Self {
        let plot = |heading, file, svg| Plot { heading, file, svg };
        let mut all = vec![plot("Cost and gain", "frontier.svg", frontier::draw(&report.arms))];
        if !report.replays.is_empty() {
            all.push(plot("Time to the first token", "ttft.svg", latency::draw(&report.arms, &latency::TTFT)));
            all.push(plot("Time between tokens", "tpot.svg", latency::draw(&report.arms, &latency::TPOT)));
        }
        all.push(plot("Latencies", "latency.svg", latency::draw(&report.arms, &latency::WHOLE)));
        if goodput::has_loads(&report.arms) {
            all.push(plot("Goodput", "goodput.svg", goodput::draw(&report.arms)));
        }
        all.push(plot("Over time", "timeline.svg", timeline::draw(report.timeline())));
        Self { all }
    }
}

/// Colours that can be told apart, on white and by most people.
const COLOURS: [&str; 10] =
    ["#1f4e9c", "#d1495b", "#2e8b57", "#e08e0b", "#7b4ea3", "#00889e", "#8a5a2b", "#d6609e", "#5f6b73", "#98a800"];
/// For when there are no colours left.
const DASHES: [&str; 3] = ["", "7 4", "2 3"];

/// What a line or point with that number looks like: colour and dashes.
fn look(number: usize) -> (&'static str, &'static str) {
    (COLOURS[number % COLOURS.len()], DASHES[number / COLOURS.len() % DASHES.len()])
}

/// A plot of which there is nothing to draw.
fn nothing(why: &str) -> String {
    let mut svg = svg::Svg::new(WIDTH, 80.0);
    svg.text(WIDTH / 2.0, 44.0, svg::Anchor::Middle, svg::INK, why);
    svg.finish()
}

/// Of every plot.
const WIDTH: f64 = 960.0;
