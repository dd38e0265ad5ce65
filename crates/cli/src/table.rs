//! Printing a subcommand's result: aligned columns for people, JSON and CSV for programs.

use crate::exit;
use clap::ValueEnum;
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// How a result is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// JSON, with everything
    Json,
    /// Comma-separated values, with a line of headings
    Csv,
}

/// Why a result was not printed.
#[derive(Debug, thiserror::Error)]
#[error("cannot print the result: {0}; check that the disk is not full")]
pub(crate) struct OutputError(#[from] std::io::Error);

impl OutputError {
    pub(crate) fn exit_code(&self) -> u8 {
        exit::FILES
    }
}

/// Prints it; a reader that has seen enough is no mistake.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// As JSON that people can read too.
pub(crate) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("plain data with text for keys has a JSON form");
    format!("{text}\n")
}

/// As comma-separated values.
pub(crate) fn csv<const COLUMNS: usize>(headings: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = writer.write_record(headings).and_then(|()| rows.iter().try_for_each(|row| writer.write_record(row)));
    let bytes = written
        .map_err(|error| error.to_string())
        .and_then(|()| writer.into_inner().map_err(|error| error.to_string()));
    String::from_utf8(bytes.expect("memory takes all that is written")).expect("text stays text")
}

/// To which side a column leans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// As columns with headings.
pub(crate) fn columns<const COLUMNS: usize>(headings: [(&str, Align); COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    columns_of(&headings, rows)
}

/// The same where the number of columns is not known beforehand; each row has as many as there are headings.
pub(crate) fn columns_of(headings: &[(&str, Align)], rows: &[impl AsRef<[String]>]) -> String {
    let first: Vec<String> = headings.iter().map(|(heading, _)| (*heading).to_string()).collect();
    let rows = std::iter::once(first.as_slice()).chain(rows.iter().map(AsRef::as_ref));
    let rows: Vec<Vec<String>> = rows.map(|row| row.iter().map(|cell| harmless(cell)).collect()).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<_> = (0..headings.len())
            .map(|column| match headings[column].1 {
                Align::Left => format!("{:<1$}", row[column], widths[column]),
                Align::Right => format!("{:>1$}", row[column], widths[column]),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Names with what they are, one below the other.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:<width$}  {}\n", harmless(value))).collect()
}

/// Without characters that would do something to a terminal: what others wrote is shown, not obeyed.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a".to_string(), "1".to_string()], ["longer".to_string(), "100".to_string()]];
        let text = columns([("name", Align::Left), ("n", Align::Right)], &rows);
        assert_eq!(text, "name      n\na         1\nlonger  100\n");
    }

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        let rows = [["a,b".to_string(), "say \"x\"".to_string()]];
        assert_eq!(csv(["name", "command"], &rows), "name,command\n\"a,b\",\"say \"\"x\"\"\"\n");
    }

    #[test]
    fn what_others_wrote_does_nothing_to_the_terminal() {
        assert_eq!(facts(&[("command", "x\x1b[2J".to_string())]), "command  x\u{fffd}[2J\n");
    }
}
