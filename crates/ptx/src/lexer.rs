//! Source text as tokens.

use crate::ast::Span;
use crate::error::{Failure, ParseErrorKind};
use logos::{FilterResult, Lexer, Logos};

/// What kind of token it is; its text stays in the source.
#[derive(Logos, Debug, Clone, Copy, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\x0B\x0C]+")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
pub(crate) enum Token {
    /// A name, an opcode, `_`, or `%` alone, which is the remainder.
    #[regex(r"[A-Za-z_$%][A-Za-z0-9_$]*")]
    Word,
    /// A directive, modifier or component with its dot, such as `.global`, `.128x256b` and `.shared::cta`.
    #[regex(r"\.[A-Za-z0-9_$]+(::[A-Za-z0-9_$]+)*")]
    Dotted,
    /// Whatever starts with a digit; what it means is found out when it is needed.
    #[regex(r"[0-9][A-Za-z0-9_]*")]
    #[regex(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")]
    #[regex(r"[0-9]+[eE][+-]?[0-9]+")]
    Number,
    /// In quotes, without any escapes.
    #[regex(r#""[^"\n]*""#)]
    String,
    #[token("(")]
    OpenParenthesis,
    #[token(")")]
    CloseParenthesis,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token(",")]
    Comma,
    #[token(";")]
    Semicolon,
    #[token(":")]
    Colon,
    #[token("@")]
    At,
    #[token("!")]
    Exclamation,
    #[token("?")]
    Question,
    #[token("=")]
    Equals,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("~")]
    Tilde,
    #[token("^")]
    Caret,
    #[token("&")]
    Ampersand,
    #[token("|")]
    Bar,
    #[token("&&")]
    And,
    #[token("||")]
    Or,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("<=")]
    LessOrEqual,
    #[token(">=")]
    GreaterOrEqual,
    #[token("==")]
    Equal,
    #[token("!=")]
    NotEqual,
    #[token("<<")]
    ShiftLeft,
    #[token(">>")]
    ShiftRight,
    /// Skipped, so that no such token comes out.
    #[token("/*", block_comment)]
    BlockComment,
    /// Behind the last token.
    EndOfFile,
}

fn block_comment(lexer: &mut Lexer<'_, Token>) -> FilterResult<(), ()> {
    match lexer.remainder().find("*/") {
        Some(length) => {
            lexer.bump(length + "*/".len());
            FilterResult::Skip
        }
        None => FilterResult::Error(()),
    }
}

/// A token and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) span: Span,
}

/// All tokens of the source, [`Token::EndOfFile`] last.
pub(crate) fn lex(source: &str) -> Result<Vec<Lexeme>, Failure> {
    let Ok(length) = u32::try_from(source.len()) else {
        return Err(Failure { offset: 0, kind: ParseErrorKind::TooLarge });
    };
    let offset = |byte: usize| u32::try_from(byte).unwrap_or(length);
    let mut lexemes = Vec::new();
    for (token, range) in Token::lexer(source).spanned() {
        let span = Span { start: offset(range.start), end: offset(range.end) };
        let token = token.map_err(|()| Failure { offset: span.start, kind: no_token(&source[range]) })?;
        lexemes.push(Lexeme { token, span });
    }
    lexemes.push(Lexeme { token: Token::EndOfFile, span: Span { start: length, end: length } });
    Ok(lexemes)
}

/// What is wrong with text that starts no token.
fn no_token(text: &str) -> ParseErrorKind {
    if text.starts_with("/*") {
        return ParseErrorKind::UnterminatedComment;
    }
    match text.chars().next() {
        Some('"') => ParseErrorKind::UnterminatedString,
        other => ParseErrorKind::UnknownCharacter(other.unwrap_or(char::REPLACEMENT_CHARACTER)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<(Token, &str)> {
        lex(source)
            .expect("lexes")
            .iter()
            .map(|lexeme| (lexeme.token, &source[lexeme.span.start as usize..lexeme.span.end as usize]))
            .collect()
    }

    #[test]
    fn modifiers_keep_their_colons() {
        assert_eq!(
            texts("cp.async.L2::128B $L__BB0_1:.x"),
            [
                (Token::Word, "cp"),
                (Token::Dotted, ".async"),
                (Token::Dotted, ".L2::128B"),
                (Token::Word, "$L__BB0_1"),
                (Token::Colon, ":"),
                (Token::Dotted, ".x"),
                (Token::EndOfFile, ""),
            ]
        );
    }

    #[test]
    fn numbers_are_one_token_each() {
        for number in ["0", "42U", "0x7fU", "0b101", "017", "0f3F800000", "0d3FF0000000000000", "1.5", "2.e-3", "1e+9"]
        {
            assert_eq!(texts(number), [(Token::Number, number), (Token::EndOfFile, "")], "{number}");
        }
    }

    #[test]
    fn comments_are_skipped() {
        assert_eq!(texts("a // b\n/* c\n* */ d"), [(Token::Word, "a"), (Token::Word, "d"), (Token::EndOfFile, "")]);
        assert_eq!(texts("//"), [(Token::EndOfFile, "")]);
    }

    #[test]
    fn what_is_no_token_is_named() {
        let kind = |source| lex(source).expect_err("no token").kind;
        assert_eq!(kind("a é"), ParseErrorKind::UnknownCharacter('é'));
        assert_eq!(kind("\"abc\n\""), ParseErrorKind::UnterminatedString);
        assert_eq!(kind("/* /"), ParseErrorKind::UnterminatedComment);
    }
}
