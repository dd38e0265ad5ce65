//! How the screen looks.

use super::screen::Screen;
use crate::commands::ps::{State, is_stray};
use crate::quantity;
use crate::table::harmless;
use detshare_api::{Class, Tenant};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

/// The lines above and below the tenants: daemon, an empty one, two of headings; keys.
const HEADER: u16 = 2;
const HEADINGS: u16 = 2;
const FOOTER: u16 = 1;
/// From here on there is room for names in full.
const WIDE: u16 = 110;
const FULL_CLASS: u16 = 11;
/// Before the name of one that is no client of the daemon's MPS.
const STRAY: &str = "×";
/// Between the columns.
const GAPS: u16 = 10;

/// As many lines as all tenants take, and an empty one below them.
pub(super) fn height(screen: &Screen) -> u16 {
    let tenants = match u16::try_from(screen.tenants.len()).unwrap_or(u16::MAX) {
        0 => 1,
        rows => rows.saturating_add(HEADINGS),
    };
    tenants.saturating_add(HEADER + 1 + FOOTER)
}

pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let [header, tenants, footer] =
        Layout::vertical([Constraint::Length(HEADER), Constraint::Min(1), Constraint::Length(FOOTER)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(first_line(screen)), header);
    if screen.status.is_some() && screen.tenants.is_empty() && screen.gone.is_none() {
        frame.render_widget(Paragraph::new("no tenants: start one with `detshare run -- PROGRAM`"), tenants);
    } else {
        draw_tenants(frame, tenants, screen);
    }
    frame.render_widget(Paragraph::new(last_line(screen)), footer);
}

fn first_line(screen: &Screen) -> Line<'static> {
    let Some(status) = &screen.status else {
        let words =
            if screen.gone.is_some() { "detshare: no daemon, waiting…" } else { "detshare: asking the daemon…" };
        return Line::from(words).bold();
    };
    if screen.gone.is_some() {
        return Line::from("detshare: daemon gone, waiting… (below is what it said last)").style(Color::Yellow).bold();
    }
    let uptime = quantity::age(quantity::approximate(status.uptime_s));
    let tenants = match status.tenants {
        1 => "1 tenant".to_string(),
        tenants => format!("{tenants} tenants"),
    };
    let policy = harmless(&status.policy);
    let has_strays = screen.tenants.iter().any(is_stray);
    Line::from(vec![
        "detshare: ".bold(),
        Span::raw(format!("policy {policy}, isolation {}", status.isolation)),
        Span::styled(if has_strays { format!(" ({STRAY} is no client)") } else { String::new() }, Color::Red),
        Span::raw(format!(", {tenants}, daemon up {uptime}")),
    ])
}

fn last_line(screen: &Screen) -> Line<'static> {
    match (&screen.said, &screen.gone) {
        (Some(said), _) => Line::from(harmless(said)).style(Color::Yellow),
        (None, Some(gone)) if !gone.is_empty() => Line::from(harmless(gone)).style(Color::Yellow),
        _ => {
            let keys = format!("↑↓ choose  p pause/resume  c class  s sort (by {})  q quit", screen.sort.name());
            Line::from(keys).dim()
        }
    }
}

struct Columns {
    name: u16,
    class: u16,
    bars: u16,
}

/// Everything else has its width.
const FIXED: [u16; 8] = [7, 7, 5, 6, 6, 6, 5, 6];

fn columns(width: u16) -> Columns {
    let is_wide = width >= WIDE;
    let (name, class) = if is_wide { (24, FULL_CLASS) } else { (11, 5) };
    let taken = FIXED.iter().sum::<u16>() + GAPS + name + class;
    Columns { name, class, bars: width.saturating_sub(taken) }
}

fn draw_tenants(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let columns = columns(area.width);
    let [pid, lane, steps, p50, p99, launches, holds, memory] = FIXED;
    let widths = [columns.name, pid, columns.class, lane, steps, p50, p99, launches, holds, memory, columns.bars]
        .map(Constraint::Length);
    let right = |text: &'static str| Cell::from(Text::from(text).alignment(Alignment::Right));
    let headings = Row::new([
        Cell::from("tenant"),
        right("pid"),
        Cell::from("class"),
        Cell::from("lane"),
        right("steps\n/s"),
        right("p50"),
        right("p99"),
        right("launch\n/s"),
        right("holds\n/s"),
        right("memory"),
        Cell::from("last\nminute"),
    ]);
    let headings = headings.height(HEADINGS).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = screen.tenants.iter().map(|tenant| row(tenant, &columns, screen));
    let table = Table::new(rows, widths)
        .header(headings)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let style = if screen.gone.is_some() { Style::new().add_modifier(Modifier::DIM) } else { Style::new() };
    let mut state = TableState::new().with_selected(screen.chosen());
    frame.render_stateful_widget(table.style(style), area, &mut state);
}

fn row(tenant: &Tenant, columns: &Columns, screen: &Screen) -> Row<'static> {
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let time =
        |time: Option<u64>| right(time.map_or("-".to_string(), |time| without_space(&quantity::nanoseconds(time))));
    let class = match tenant.class {
        class if columns.class >= FULL_CLASS => class.name(),
        Class::Latency => "lat",
        Class::BestEffort => "best",
    };
    let class = match tenant.phase.as_deref() {
        Some("decode") if columns.class >= FULL_CLASS => "lat·decode",
        Some("prefill") if columns.class >= FULL_CLASS => "lat·prefill",
        Some("decode") => "dec",
        Some("prefill") => "pre",
        _ => class,
    };
    let (mark, colour) = mark(tenant);
    let wrong = match tenant {
        stray if is_stray(stray) => STRAY,
        Tenant { quarantined: true, .. } => "!",
        _ => " ",
    };
    Row::new([
        Cell::from(Line::from(vec![
            Span::styled(mark, colour),
            Span::styled(wrong, Color::Red),
            Span::raw(harmless(&tenant.name)),
        ])),
        right(tenant.pid.to_string()),
        Cell::from(class),
        Cell::from(harmless(&tenant.lane)),
        right(quantity::number(tenant.steps_per_second)),
        time(tenant.step_p50_ns),
        time(tenant.step_p99_ns),
        right(quantity::number(tenant.launches_per_second)),
        right(quantity::number(tenant.holds_per_second)),
        right(quantity::short_size(tenant.memory)),
        Cell::from(screen.bars(tenant, columns.bars.into())),
    ])
}

/// What it is doing.
fn mark(tenant: &Tenant) -> (&'static str, Color) {
    match State::of(tenant) {
        State::Paused => ("‖", Color::Yellow),
        State::Holding => ("◐", Color::Magenta),
        State::Busy if tenant.stalled => ("■", Color::Red),
        State::Busy if tenant.strained => ("▲", Color::Red),
        State::Busy => ("●", Color::Green),
        State::Idle => ("·", Color::Reset),
    }
}

/// Every column counts.
fn without_space(text: &str) -> String {
    text.replace(' ', "")
}
