//! Tokens as a tree.
//!
//! This file has the cursor over the tokens and the module with its items; below it are declarations, the
//! statements of a body, operands and constants.

mod constant;
mod declaration;
mod operand;
mod statement;

use crate::ast::{Directive, Function, FunctionDirective, FunctionKind, Item, Linkage, Module, Space, Span, Variable};
use crate::error::{Failure, MAX_DEPTH, ParseError, ParseErrorKind};
use crate::lexer::{Lexeme, Token, lex};

type Parsed<T> = Result<T, Failure>;

/// The only address size that compilers still take, and what they assume without the directive.
const DEFAULT_ADDRESS_SIZE: u32 = 64;

/// How much of a token an error message shows, in characters.
const SHOWN_LENGTH: usize = 40;

/// Reads a module.
///
/// # Errors
///
/// Where the source is not PTX. An instruction whose operands are not understood is no error: it becomes
/// [`Statement::Raw`](crate::ast::Statement::Raw).
pub fn parse(source: &str) -> Result<Module, ParseError> {
    lex(source)
        .and_then(|lexemes| Parser { source, lexemes, position: 0, depth: 0 }.module())
        .map_err(|failure| failure.locate(source))
}

struct Parser<'s> {
    source: &'s str,
    /// Ends with [`Token::EndOfFile`], which is never passed.
    lexemes: Vec<Lexeme>,
    position: usize,
    depth: u32,
}

impl Parser<'_> {
    fn module(&mut self) -> Parsed<Module> {
        self.expect_dotted(".version", "'.version'")?;
        let version = self.version()?;
        self.expect_dotted(".target", "'.target'")?;
        let targets = self.names()?;
        let address_size = match self.eat_dotted(".address_size") {
            true => self.small_number("an address size")?,
            false => DEFAULT_ADDRESS_SIZE,
        };
        let mut items = Vec::new();
        while self.token() != Token::EndOfFile {
            items.push(self.item()?);
        }
        Ok(Module { version, targets, address_size, items })
    }

    fn version(&mut self) -> Parsed<(u32, u32)> {
        let parts = self.text().split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
        match parts {
            Some((Ok(major), Ok(minor))) if self.token() == Token::Number => {
                self.advance();
                Ok((major, minor))
            }
            _ => Err(self.unexpected("a version such as 8.4")),
        }
    }

    fn item(&mut self) -> Parsed<Item> {
        let start = self.start();
        let linkage = self.linkage();
        if self.eat_dotted(".entry") {
            return Ok(Item::Function(self.function(start, linkage, FunctionKind::Kernel)?));
        }
        if self.eat_dotted(".func") {
            return Ok(Item::Function(self.function(start, linkage, FunctionKind::Function)?));
        }
        if self.space().is_some() {
            return Ok(Item::Variable(self.variable(start, linkage)?));
        }
        if linkage != Linkage::Internal {
            return Err(self.unexpected("'.entry', '.func' or a state space"));
        }
        if self.token() != Token::Dotted {
            return Err(self.unexpected("a directive"));
        }
        Ok(Item::Directive(self.directive()?))
    }

    fn linkage(&mut self) -> Linkage {
        let linkage = match self.text() {
            ".visible" => Linkage::Visible,
            ".extern" => Linkage::Extern,
            ".weak" => Linkage::Weak,
            ".common" => Linkage::Common,
            _ => return Linkage::Internal,
        };
        self.advance();
        linkage
    }

    /// What follows `.entry` or `.func`.
    fn function(&mut self, start: u32, linkage: Linkage, kind: FunctionKind) -> Parsed<Function> {
        let attributes = self.attributes()?;
        let returns = self.parameters()?;
        let name = self.name("a function's name")?;
        let parameters = self.parameters()?;
        let directives = self.function_directives()?;
        let body = match self.token() {
            Token::Semicolon => {
                self.advance();
                None
            }
            Token::OpenBrace => Some(self.block()?),
            _ => return Err(self.unexpected("'{' or ';'")),
        };
        let span = self.span_from(start);
        Ok(Function { linkage, kind, attributes, name, returns, parameters, directives, body, span })
    }

    /// `(…)`, or nothing.
    fn parameters(&mut self) -> Parsed<Vec<Variable>> {
        if !self.eat(Token::OpenParenthesis) {
            return Ok(Vec::new());
        }
        let mut parameters = Vec::new();
        if self.eat(Token::CloseParenthesis) {
            return Ok(parameters);
        }
        loop {
            parameters.push(self.parameter()?);
            if !self.eat(Token::Comma) {
                self.expect(Token::CloseParenthesis, "',' or ')'")?;
                return Ok(parameters);
            }
        }
    }

    fn function_directives(&mut self) -> Parsed<Vec<FunctionDirective>> {
        let mut directives = Vec::new();
        while self.token() == Token::Dotted {
            let (start, name) = (self.start(), self.text()[1..].to_string());
            self.advance();
            let (arguments, strings, span) = (Vec::new(), Vec::new(), self.span_from(start));
            let mut directive = FunctionDirective { name, arguments, strings, span };
            if matches!(self.token(), Token::Number | Token::String) {
                self.directive_arguments(&mut directive)?;
                directive.span = self.span_from(start);
            }
            directives.push(directive);
        }
        Ok(directives)
    }

    fn directive_arguments(&mut self, directive: &mut FunctionDirective) -> Parsed<()> {
        loop {
            match self.token() {
                Token::Number => directive.arguments.push(self.small_number("a directive's argument")?),
                Token::String => directive.strings.push(self.string("a string")?),
                _ => return Err(self.unexpected("a directive's argument")),
            }
            if !self.eat(Token::Comma) {
                break;
            }
        }
        // A pragma has a semicolon of its own, before the one or the brace that ends the function's head.
        if directive.strings.is_empty() { Ok(()) } else { self.expect(Token::Semicolon, "',' or ';'") }
    }

    /// A directive that is kept as text.
    fn directive(&mut self) -> Parsed<Directive> {
        let start = self.start();
        match self.text() {
            ".file" => self.file()?,
            ".loc" => self.location()?,
            ".section" => self.section()?,
            _ => self.pass_to_semicolon(self.position)?,
        }
        Ok(self.text_from(start))
    }

    /// `.file 1 "name"` with time and size.
    fn file(&mut self) -> Parsed<()> {
        self.advance();
        self.expect(Token::Number, "a file's number")?;
        self.string("a file's name in quotes")?;
        if self.eat(Token::Comma) {
            self.expect(Token::Number, "a file's time")?;
            self.expect(Token::Comma, "','")?;
            self.expect(Token::Number, "a file's size")?;
        }
        Ok(())
    }

    /// `.loc 1 2 3`, with `, function_name label+4, inlined_at 1 2 3` where a call was inlined.
    fn location(&mut self) -> Parsed<()> {
        self.advance();
        self.file_line_column()?;
        while self.eat(Token::Comma) {
            match self.text() {
                "function_name" => {
                    self.advance();
                    self.name("a label")?;
                    if self.eat(Token::Plus) {
                        self.expect(Token::Number, "an offset")?;
                    }
                }
                "inlined_at" => {
                    self.advance();
                    self.file_line_column()?;
                }
                _ => return Err(self.unexpected("'function_name' or 'inlined_at'")),
            }
        }
        Ok(())
    }

    fn file_line_column(&mut self) -> Parsed<()> {
        self.expect(Token::Number, "a file's number")?;
        self.expect(Token::Number, "a line")?;
        self.expect(Token::Number, "a column")
    }

    /// `.section .debug_info {…}`
    fn section(&mut self) -> Parsed<()> {
        self.advance();
        self.expect(Token::Dotted, "a section's name")?;
        self.expect(Token::OpenBrace, "'{'")?;
        let mut open = 1_u32;
        while open > 0 {
            match self.token() {
                Token::OpenBrace => open += 1,
                Token::CloseBrace => open -= 1,
                Token::EndOfFile => return Err(self.unexpected("'}'")),
                _ => {}
            }
            self.advance();
        }
        Ok(())
    }

    /// Passes everything up to the semicolon that ends a statement. From `operands` on, a word that starts a line
    /// and follows an operand is taken for the next statement, so that a forgotten semicolon is reported.
    fn pass_to_semicolon(&mut self, operands: usize) -> Parsed<()> {
        let mut open = 0_u32;
        loop {
            match self.token() {
                Token::Semicolon if open == 0 => {
                    self.advance();
                    return Ok(());
                }
                Token::OpenBrace | Token::OpenBracket | Token::OpenParenthesis => open += 1,
                Token::CloseBrace | Token::CloseBracket | Token::CloseParenthesis if open > 0 => open -= 1,
                Token::Word | Token::At if open == 0 && self.position > operands && self.follows_operand() => {
                    return Err(self.unexpected("';'"));
                }
                Token::Semicolon => return Err(self.unexpected("a closing bracket")),
                Token::EndOfFile | Token::CloseBrace | Token::CloseBracket | Token::CloseParenthesis => {
                    return Err(self.unexpected("';'"));
                }
                _ => {}
            }
            self.advance();
        }
    }

    /// Whether the token is the first of its line and the one before it can end an operand.
    fn follows_operand(&self) -> bool {
        let Some(before) = self.position.checked_sub(1).map(|index| self.lexemes[index]) else { return false };
        let ends_operand = matches!(
            before.token,
            Token::Word | Token::Number | Token::CloseBrace | Token::CloseBracket | Token::CloseParenthesis
        );
        ends_operand && self.source[before.span.end as usize..self.start() as usize].contains('\n')
    }
}

/// The cursor.
impl<'s> Parser<'s> {
    fn token(&self) -> Token {
        self.lexemes[self.position].token
    }

    /// The token after the next one.
    fn second_token(&self) -> Token {
        self.lexemes[self.second()].token
    }

    /// Where the token after the next one is, or the last one.
    fn second(&self) -> usize {
        (self.position + 1).min(self.lexemes.len() - 1)
    }

    fn text(&self) -> &'s str {
        self.text_at(self.position)
    }

    fn text_at(&self, index: usize) -> &'s str {
        let span = self.lexemes[index].span;
        &self.source[span.start as usize..span.end as usize]
    }

    /// Where the next token starts.
    fn start(&self) -> u32 {
        self.lexemes[self.position].span.start
    }

    /// Whether the next token follows the one before it without a gap.
    fn is_adjacent(&self) -> bool {
        self.position > 0 && self.lexemes[self.position - 1].span.end == self.start()
    }

    /// From there to the end of the last token that was passed.
    fn span_from(&self, start: u32) -> Span {
        Span { start, end: self.lexemes[self.position.saturating_sub(1)].span.end }
    }

    fn text_from(&self, start: u32) -> Directive {
        let span = self.span_from(start);
        Directive { text: self.source[span.start as usize..span.end as usize].to_string(), span }
    }

    fn advance(&mut self) {
        self.position = self.second();
    }

    fn eat(&mut self, token: Token) -> bool {
        let found = self.token() == token;
        if found {
            self.advance();
        }
        found
    }

    fn eat_dotted(&mut self, text: &str) -> bool {
        let found = self.text() == text;
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, token: Token, expected: &'static str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn expect_dotted(&mut self, text: &str, expected: &'static str) -> Parsed<()> {
        if self.eat_dotted(text) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn name(&mut self, expected: &'static str) -> Parsed<String> {
        if self.token() != Token::Word || self.text() == "%" {
            return Err(self.unexpected(expected));
        }
        let name = self.text().to_string();
        self.advance();
        Ok(name)
    }

    /// Names with commas between them.
    fn names(&mut self) -> Parsed<Vec<String>> {
        let mut names = vec![self.name("a name")?];
        while self.eat(Token::Comma) {
            names.push(self.name("a name")?);
        }
        Ok(names)
    }

    /// What stands between quotes.
    fn string(&mut self, expected: &'static str) -> Parsed<String> {
        if self.token() != Token::String {
            return Err(self.unexpected(expected));
        }
        let quoted = self.text();
        self.advance();
        Ok(quoted[1..quoted.len() - 1].to_string())
    }

    /// Runs one nested construct. Every recursion of the parser goes through here.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.failure(ParseErrorKind::TooDeep));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn failure(&self, kind: ParseErrorKind) -> Failure {
        Failure { offset: self.start(), kind }
    }

    fn unexpected(&self, expected: &'static str) -> Failure {
        let text = self.text();
        let found = match self.token() {
            Token::EndOfFile => "the end of the file".to_string(),
            _ if text.chars().nth(SHOWN_LENGTH).is_some() => {
                format!("'{}…'", text.chars().take(SHOWN_LENGTH).collect::<String>())
            }
            _ => format!("'{text}'"),
        };
        self.failure(ParseErrorKind::Unexpected { expected, found })
    }

    fn space(&self) -> Option<Space> {
        Space::from_name(self.text().strip_prefix('.')?)
    }
}
