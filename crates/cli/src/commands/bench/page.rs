//! One page with everything: table, plots and what they say in words.

use super::plot::{Plots, escape};
use super::report::{HEADINGS, Report};
use super::words;
use super::{paired_table, service_table};
use std::fmt::Write;

const STYLE: &str = "
body { font-family: Helvetica, Arial, sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 2rem auto; \
padding: 0 1rem; line-height: 1.45; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #e3e3e3; white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2), th:last-child, td:last-child { text-align: left; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; } .note { color: #666; }
dt { font-weight: bold; margin-top: .8rem; } dd { margin: 0; }
";

/// It needs nothing but itself.
pub(crate) fn page(report: &Report, plots: &Plots) -> String {
    let mut page = String::new();
    let title = escape(&report.title());
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>detshare bench {title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}.</p>\n<p class=\"note\">{}</p>\n",
        escape(&report.summary),
        escape(&report.machine.in_words()),
    );
    for note in report.notes() {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&note));
    }
    page.push_str("<h2>Figures</h2>\n");
    let rows = report.rows();
    page.push_str(&table(&HEADINGS, &rows));
    if !report.replays.is_empty() {
        let headings = service_table::HEADINGS.map(|(heading, _)| heading);
        page.push_str(&table(&headings, &service_table::rows(&report.arms)));
        let paired = paired_table::rows(&report.arms);
        if !paired.is_empty() {
            page.push_str(&table(&paired_table::HEADINGS.map(|(heading, _)| heading), &paired));
            let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(paired_table::ABOUT));
        }
    }
    for line in report.about_servers() {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&line));
    }
    let _ = writeln!(
        page,
        "<p class=\"note\">Medians over the rounds; in parentheses the smallest and the largest. “Added” is the time more \
         than alone in the same round, “share” the part of a program’s own steps a second alone. {}</p>",
        escape(report.timing)
    );
    page.push_str("<h2>In words</h2>\n<dl>\n");
    for arm in &report.arms {
        let _ = writeln!(page, "<dt>{}: {}</dt>", escape(&arm.name), escape(arm.about));
        let _ = writeln!(page, "<dd>{}</dd>", escape(&words::reading(arm)));
    }
    page.push_str("</dl>\n");
    for plot in &plots.all {
        let _ = write!(page, "<h2>{}</h2>\n{}", plot.heading, plot.svg);
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn table<const COLUMNS: usize>(headings: &[&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let row = |tag: &str, cells: &[&str]| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let mut text = String::from("<div class=\"scroll\"><table>\n");
    text.push_str(&row("th", headings));
    for cells in rows {
        text.push_str(&row("td", &cells.each_ref().map(String::as_str)));
    }
    text.push_str("</table></div>\n");
    text
}
