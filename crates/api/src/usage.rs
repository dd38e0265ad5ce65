//! What our programs say of a command line that makes no sense.

/// The error as the parser of the command line words it, in one line: without the usage, which is one `--help` away.
#[must_use]
pub fn in_one_line(error: &str, help: &str) -> String {
    let text = error.strip_prefix("error: ").unwrap_or(error);
    let is_end = |line: &&str| line.starts_with("Usage:") || line.starts_with("For more information");
    let lines: Vec<_> =
        text.lines().take_while(|line| !is_end(line)).map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("{}; see `{help}`", lines.join(" "))
}

#[cfg(test)]
mod tests {
    use super::in_one_line;

    #[test]
    fn the_usage_is_left_out() {
        let error = "error: unexpected argument '--x' found\n\n  tip: try '--y'\n\nUsage: a [OPTIONS]\n\nFor more information\n";
        let expected = "unexpected argument '--x' found tip: try '--y'; see `a --help`";
        assert_eq!(in_one_line(error, "a --help"), expected);
    }
}
