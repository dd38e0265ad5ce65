//! Why a source is not PTX.

/// How deep braces, parentheses and brackets may be nested. Compilers stay below ten; the bound keeps the
/// parser's stack small.
pub const MAX_DEPTH: u32 = 64;

/// What is wrong with a source, and where: `3:17: expected ';', found '}'`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {kind}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The character within the line, from 1.
    pub column: u32,
    /// The byte within the source, from 0.
    pub offset: u32,
    /// What is wrong.
    pub kind: ParseErrorKind,
}

/// What is wrong with a source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseErrorKind {
    /// Something else should stand here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What should, such as `';'` or `a name`.
        expected: &'static str,
        /// What does.
        found: String,
    },
    /// Not a number, though it starts with a digit.
    #[error("'{0}' is not a number")]
    Number(String),
    /// A number beyond what its place can hold.
    #[error("{value} is out of range for {place}")]
    OutOfRange {
        /// The number.
        value: String,
        /// What it stands for, such as `an alignment`.
        place: &'static str,
    },
    /// A constant divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// An integer operation on a constant that is none.
    #[error("operator '{0}' takes integers only")]
    NotInteger(&'static str),
    /// Braces, parentheses or brackets beyond any sense.
    #[error("nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// `/*` without its `*/`.
    #[error("the comment has no end")]
    UnterminatedComment,
    /// `"` without its partner on the same line.
    #[error("the string has no end")]
    UnterminatedString,
    /// A character that PTX has no use for.
    #[error("unknown character '{0}'")]
    UnknownCharacter(char),
    /// More than a span can address.
    #[error("the source is larger than 4 GiB")]
    TooLarge,
}

/// A [`ParseError`] before its line is counted: failures are common where the parser tries one shape after
/// another.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) offset: u32,
    pub(crate) kind: ParseErrorKind,
}

impl Failure {
    pub(crate) fn locate(self, source: &str) -> ParseError {
        let (line, column) = line_column(source, self.offset);
        ParseError { line, column, offset: self.offset, kind: self.kind }
    }
}

/// Line and column of a byte of the source, both from 1; columns count characters. An offset within a character
/// or behind the end counts as the nearest character's before it.
#[must_use]
pub fn line_column(source: &str, offset: u32) -> (u32, u32) {
    let end = source.floor_char_boundary((offset as usize).min(source.len()));
    let before = &source[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
    (count(before.bytes().filter(|byte| *byte == b'\n').count()), count(before[line_start..].chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let source = "a\n ü b\n";
        assert_eq!(line_column(source, 0), (1, 1));
        assert_eq!(line_column(source, 1), (1, 2));
        assert_eq!(line_column(source, 2), (2, 1));
        assert_eq!(line_column(source, 4), (2, 2));
        assert_eq!(line_column(source, 6), (2, 4));
        assert_eq!(line_column(source, 99), (3, 1));
    }
}
