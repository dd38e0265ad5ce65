//! Constants, folded as `ptxas` folds them.
//!
//! An integer is signed unless it has the suffix `U` or needs its 64th bit. An operation is unsigned as soon as one
//! operand is; `~` and the remainder always are. Shift counts are taken modulo 64.

use super::{Parsed, Parser};
use crate::ast::{InitValue, Operand};
use crate::error::ParseErrorKind;
use crate::lexer::Token;
use core::fmt;
use core::num::IntErrorKind;

/// The number of threads in a warp, the one constant with a name.
const WARP_SIZE: (&str, i64) = ("WARP_SZ", 32);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Signed(i64),
    Unsigned(u64),
    /// `0f3F800000`, which takes part in no operation.
    Single(u32),
    Double(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    Equal,
    NotEqual,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
}

/// How tight operators bind, as in C. The conditional binds loosest and is not among them.
const LOOSEST: u8 = 1;

impl Operator {
    fn binding(self) -> u8 {
        match self {
            Self::Multiply | Self::Divide | Self::Remainder => 10,
            Self::Add | Self::Subtract => 9,
            Self::ShiftLeft | Self::ShiftRight => 8,
            Self::Less | Self::Greater | Self::LessOrEqual | Self::GreaterOrEqual => 7,
            Self::Equal | Self::NotEqual => 6,
            Self::BitAnd => 5,
            Self::BitXor => 4,
            Self::BitOr => 3,
            Self::And => 2,
            Self::Or => LOOSEST,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::Less => "<",
            Self::Greater => ">",
            Self::LessOrEqual => "<=",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::BitAnd => "&",
            Self::BitXor => "^",
            Self::BitOr => "|",
            Self::And => "&&",
            Self::Or => "||",
        }
    }
}

impl Parser<'_> {
    /// Whether that token is a word that stands for no number.
    pub(super) fn is_variable(&self, index: usize) -> bool {
        self.lexemes[index].token == Token::Word && self.text_at(index) != WARP_SIZE.0
    }

    /// An expression of constants.
    pub(super) fn constant(&mut self) -> Parsed<Value> {
        let condition = self.binary(LOOSEST)?;
        if !self.eat(Token::Question) {
            return Ok(condition);
        }
        let holds = condition.is_true();
        let chosen = self.nested(Self::constant)?;
        self.expect(Token::Colon, "':'")?;
        let other = self.nested(Self::constant)?;
        Ok(if holds { chosen } else { other })
    }

    fn binary(&mut self, loosest: u8) -> Parsed<Value> {
        let mut left = self.unary()?;
        while let Some(operator) = self.operator().filter(|operator| operator.binding() >= loosest) {
            let at = self.position;
            self.advance();
            let right = self.nested(|parser| parser.binary(operator.binding() + 1))?;
            left = apply(operator, left, right).map_err(|kind| {
                self.position = at;
                self.failure(kind)
            })?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<Operator> {
        Some(match self.token() {
            Token::Star => Operator::Multiply,
            Token::Slash => Operator::Divide,
            Token::Word if self.text() == "%" => Operator::Remainder,
            Token::Plus => Operator::Add,
            Token::Minus => Operator::Subtract,
            Token::ShiftLeft => Operator::ShiftLeft,
            Token::ShiftRight => Operator::ShiftRight,
            Token::Less => Operator::Less,
            Token::Greater => Operator::Greater,
            Token::LessOrEqual => Operator::LessOrEqual,
            Token::GreaterOrEqual => Operator::GreaterOrEqual,
            Token::Equal => Operator::Equal,
            Token::NotEqual => Operator::NotEqual,
            Token::Ampersand => Operator::BitAnd,
            Token::Caret => Operator::BitXor,
            Token::Bar => Operator::BitOr,
            Token::And => Operator::And,
            Token::Or => Operator::Or,
            _ => return None,
        })
    }

    fn unary(&mut self) -> Parsed<Value> {
        let at = self.position;
        let token = self.token();
        match token {
            Token::Plus | Token::Minus | Token::Exclamation | Token::Tilde => {
                self.advance();
                let value = self.nested(Self::unary)?;
                prefix(token, value).map_err(|kind| {
                    self.position = at;
                    self.failure(kind)
                })
            }
            Token::OpenParenthesis if self.second_token() == Token::Dotted => {
                self.advance();
                self.cast()
            }
            Token::OpenParenthesis => {
                self.advance();
                let value = self.nested(Self::constant)?;
                self.expect(Token::CloseParenthesis, "')'")?;
                Ok(value)
            }
            Token::Word if !self.is_variable(self.position) => {
                self.advance();
                Ok(Value::Signed(WARP_SIZE.1))
            }
            // `.5` looks like a modifier.
            Token::Dotted => match self.text().parse() {
                Ok(value) => {
                    self.advance();
                    Ok(Value::Double(value))
                }
                Err(_) => Err(self.unexpected("a value")),
            },
            Token::Number => self.literal(),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// `.s64)` or `.u64)`, and what is cast.
    fn cast(&mut self) -> Parsed<Value> {
        let unsigned = match self.text() {
            ".u64" => true,
            ".s64" => false,
            _ => return Err(self.unexpected("'.s64' or '.u64'")),
        };
        self.advance();
        self.expect(Token::CloseParenthesis, "')'")?;
        let value = self.nested(Self::unary)?;
        match value.as_bits() {
            Some(bits) => Ok(Value::from_bits(bits, unsigned)),
            None => Err(self.failure(ParseErrorKind::NotInteger(if unsigned { "(.u64)" } else { "(.s64)" }))),
        }
    }

    /// A single number.
    pub(super) fn literal(&mut self) -> Parsed<Value> {
        let value = number(self.text()).map_err(|kind| self.failure(kind))?;
        self.advance();
        Ok(value)
    }
}

fn number(text: &str) -> Result<Value, ParseErrorKind> {
    let malformed = || ParseErrorKind::Number(text.to_string());
    let prefixed = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    if let Some(digits) = prefixed(["0f", "0F"]) {
        let bits = hex_bits(digits, 8).and_then(|bits| u32::try_from(bits).ok());
        return bits.map(Value::Single).ok_or_else(malformed);
    }
    if let Some(digits) = prefixed(["0d", "0D"]) {
        return hex_bits(digits, 16).map(|bits| Value::Double(f64::from_bits(bits))).ok_or_else(malformed);
    }
    let hexadecimal = prefixed(["0x", "0X"]);
    if hexadecimal.is_none() && text.contains(['.', 'e', 'E']) {
        return text.parse().map(Value::Double).map_err(|_| malformed());
    }
    let (digits, radix) = match (hexadecimal, prefixed(["0b", "0B"])) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 2),
        _ if text.starts_with('0') => (text, 8),
        _ => (text, 10),
    };
    let (digits, suffixed) = match digits.strip_suffix('U') {
        Some(digits) => (digits, true),
        None => (digits, false),
    };
    match u64::from_str_radix(digits, radix) {
        Ok(bits) => Ok(Value::from_bits(bits, suffixed || i64::try_from(bits).is_err())),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(ParseErrorKind::OutOfRange { value: text.to_string(), place: "a 64-bit integer" })
        }
        Err(_) => Err(malformed()),
    }
}

/// Exactly so many hexadecimal digits.
fn hex_bits(digits: &str, length: usize) -> Option<u64> {
    if digits.len() == length { u64::from_str_radix(digits, 16).ok() } else { None }
}

impl Value {
    fn from_bits(bits: u64, unsigned: bool) -> Self {
        if unsigned { Self::Unsigned(bits) } else { Self::Signed(bits.cast_signed()) }
    }

    /// The two's complement of an integer.
    pub(super) fn as_bits(self) -> Option<u64> {
        match self {
            Self::Signed(value) => Some(value.cast_unsigned()),
            Self::Unsigned(value) => Some(value),
            Self::Single(_) | Self::Double(_) => None,
        }
    }

    pub(super) fn as_unsigned(self) -> Option<u64> {
        match self {
            Self::Signed(value) => u64::try_from(value).ok(),
            Self::Unsigned(value) => Some(value),
            Self::Single(_) | Self::Double(_) => None,
        }
    }

    pub(super) fn as_signed(self) -> Option<i64> {
        match self {
            Self::Signed(value) => Some(value),
            Self::Unsigned(value) => i64::try_from(value).ok(),
            Self::Single(_) | Self::Double(_) => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the conversion is what is asked for")]
    fn as_double(self) -> Option<f64> {
        match self {
            Self::Signed(value) => Some(value as f64),
            Self::Unsigned(value) => Some(value as f64),
            Self::Single(_) => None,
            Self::Double(value) => Some(value),
        }
    }

    fn is_true(self) -> bool {
        match self {
            Self::Signed(value) => value != 0,
            Self::Unsigned(value) => value != 0,
            Self::Single(bits) => f32::from_bits(bits) != 0.0,
            Self::Double(value) => value != 0.0,
        }
    }
}

impl From<Value> for Operand {
    fn from(value: Value) -> Self {
        match value {
            Value::Signed(value) => Self::Integer(readable(value)),
            Value::Unsigned(value) => Self::Integer(value.into()),
            Value::Single(bits) => Self::F32(bits),
            Value::Double(value) => Self::F64(value.to_bits()),
        }
    }
}

impl From<Value> for InitValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Signed(value) => Self::Integer(readable(value)),
            Value::Unsigned(value) => Self::Integer(value.into()),
            Value::Single(bits) => Self::F32(bits),
            Value::Double(value) => Self::F64(value.to_bits()),
        }
    }
}

/// The number that the tree holds. The most negative integer has no literal: `-9223372036854775808` is an unsigned
/// 2⁶³, which has the same bits. So that what is printed is read back, it is 2⁶³ in the tree.
fn readable(value: i64) -> i128 {
    if value == i64::MIN { 1 << 63 } else { value.into() }
}

/// Floats as PTX writes their bits. In decimal they would bring 25 KB along into every process that the shim is loaded into.
impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(value) => value.fmt(formatter),
            Self::Unsigned(value) => value.fmt(formatter),
            Self::Single(bits) => write!(formatter, "0f{bits:08X}"),
            Self::Double(value) => write!(formatter, "0d{:016X}", value.to_bits()),
        }
    }
}

fn prefix(operator: Token, value: Value) -> Result<Value, ParseErrorKind> {
    let not_integer = |symbol| ParseErrorKind::NotInteger(symbol);
    Ok(match (operator, value) {
        (Token::Minus, Value::Signed(value)) => Value::Signed(value.wrapping_neg()),
        (Token::Minus, Value::Unsigned(value)) => Value::Unsigned(value.wrapping_neg()),
        (Token::Minus, Value::Double(value)) => Value::Double(-value),
        (Token::Minus, Value::Single(_)) => return Err(not_integer("-")),
        (Token::Exclamation, _) => Value::Signed((!value.is_true()).into()),
        (Token::Tilde, _) => Value::Unsigned(!value.as_bits().ok_or_else(|| not_integer("~"))?),
        _ => value,
    })
}

fn apply(operator: Operator, left: Value, right: Value) -> Result<Value, ParseErrorKind> {
    let truth = |holds: bool| Ok(Value::Signed(holds.into()));
    match operator {
        Operator::And => return truth(left.is_true() && right.is_true()),
        Operator::Or => return truth(left.is_true() || right.is_true()),
        _ => {}
    }
    let not_integer = ParseErrorKind::NotInteger(operator.symbol());
    match (left, right) {
        (Value::Double(_), _) | (_, Value::Double(_)) => match (left.as_double(), right.as_double()) {
            (Some(left), Some(right)) => apply_double(operator, left, right).ok_or(not_integer),
            _ => Err(not_integer),
        },
        (Value::Signed(left), Value::Signed(right)) => apply_signed(operator, left, right),
        _ => match (left.as_bits(), right.as_bits()) {
            (Some(bits), Some(right)) => apply_unsigned(operator, bits, right, matches!(left, Value::Signed(_))),
            _ => Err(not_integer),
        },
    }
}

fn apply_double(operator: Operator, left: f64, right: f64) -> Option<Value> {
    let truth = |holds: bool| Some(Value::Signed(holds.into()));
    match operator {
        Operator::Multiply => Some(Value::Double(left * right)),
        Operator::Divide => Some(Value::Double(left / right)),
        Operator::Add => Some(Value::Double(left + right)),
        Operator::Subtract => Some(Value::Double(left - right)),
        Operator::Less => truth(left < right),
        Operator::Greater => truth(left > right),
        Operator::LessOrEqual => truth(left <= right),
        Operator::GreaterOrEqual => truth(left >= right),
        Operator::Equal => truth(left == right),
        Operator::NotEqual => truth(left != right),
        _ => None,
    }
}

fn apply_signed(operator: Operator, left: i64, right: i64) -> Result<Value, ParseErrorKind> {
    Ok(Value::Signed(match operator {
        Operator::Divide if right == 0 => return Err(ParseErrorKind::DivisionByZero),
        Operator::Divide => left.wrapping_div(right),
        Operator::ShiftRight => left.wrapping_shr(shift_count(right.cast_unsigned())),
        Operator::Less => (left < right).into(),
        Operator::Greater => (left > right).into(),
        Operator::LessOrEqual => (left <= right).into(),
        Operator::GreaterOrEqual => (left >= right).into(),
        Operator::Remainder => return apply_unsigned(operator, left.cast_unsigned(), right.cast_unsigned(), true),
        // The rest has the same bits either way.
        _ => match apply_unsigned(operator, left.cast_unsigned(), right.cast_unsigned(), true)? {
            Value::Unsigned(bits) => bits.cast_signed(),
            value => return Ok(value),
        },
    }))
}

/// `left_signed` says what the left operand was: a shift has its type.
fn apply_unsigned(operator: Operator, left: u64, right: u64, left_signed: bool) -> Result<Value, ParseErrorKind> {
    let truth = |holds: bool| Ok(Value::Signed(holds.into()));
    Ok(Value::Unsigned(match operator {
        Operator::Divide | Operator::Remainder if right == 0 => return Err(ParseErrorKind::DivisionByZero),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::ShiftLeft => return Ok(Value::from_bits(left.wrapping_shl(shift_count(right)), !left_signed)),
        Operator::ShiftRight if left_signed => {
            return Ok(Value::Signed(left.cast_signed().wrapping_shr(shift_count(right))));
        }
        Operator::ShiftRight => left.wrapping_shr(shift_count(right)),
        Operator::BitAnd => left & right,
        Operator::BitXor => left ^ right,
        Operator::BitOr => left | right,
        Operator::Less => return truth(left < right),
        Operator::Greater => return truth(left > right),
        Operator::LessOrEqual => return truth(left <= right),
        Operator::GreaterOrEqual => return truth(left >= right),
        Operator::Equal => return truth(left == right),
        Operator::NotEqual => return truth(left != right),
        Operator::And => return truth(left != 0 && right != 0),
        Operator::Or => return truth(left != 0 || right != 0),
    }))
}

/// A shift takes the low six bits of its count.
fn shift_count(count: u64) -> u32 {
    u32::try_from(count & 63).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::lex;

    fn folded(source: &str) -> Result<Value, ParseErrorKind> {
        let lexemes = lex(source).expect("tokens");
        let mut parser = Parser { source, lexemes, position: 0, depth: 0 };
        let value = parser.constant().map_err(|failure| failure.kind)?;
        assert_eq!(parser.token(), Token::EndOfFile, "{source}");
        Ok(value)
    }

    #[test]
    fn literals_have_the_type_that_they_need() {
        assert_eq!(folded("42"), Ok(Value::Signed(42)));
        assert_eq!(folded("42U"), Ok(Value::Unsigned(42)));
        assert_eq!(folded("0x7FU"), Ok(Value::Unsigned(127)));
        assert_eq!(folded("0b101"), Ok(Value::Signed(5)));
        assert_eq!(folded("017"), Ok(Value::Signed(15)));
        assert_eq!(folded("0xffffffffffffffff"), Ok(Value::Unsigned(u64::MAX)));
        assert_eq!(folded("-9223372036854775808"), Ok(Value::Unsigned(1 << 63)));
        assert_eq!(folded("0f3f800000"), Ok(Value::Single(0x3f80_0000)));
        assert_eq!(folded("0d3FF0000000000000"), Ok(Value::Double(1.0)));
        assert_eq!(folded("2.5e-1"), Ok(Value::Double(0.25)));
        assert_eq!(folded(".5"), Ok(Value::Double(0.5)));
        assert_eq!(folded("WARP_SZ*2"), Ok(Value::Signed(64)));
    }

    /// Each of these values is what `ptxas` puts into the variable of `.global .u64 x = …`.
    #[test]
    fn folding_agrees_with_ptxas() {
        for (source, bits) in [
            ("(~0)>>60", 15),
            ("(-1&-1)>>60", u64::MAX),
            ("(-1)>>60", u64::MAX),
            ("-1U/2", u64::MAX / 2),
            ("~0U/2", u64::MAX / 2),
            ("5-6U", u64::MAX),
            ("(3<4)?7:8", 7),
            ("0x10 % 3", 1),
            ("-7 % 3", 0),
            ("-7/2", 3_u64.wrapping_neg()),
            ("(.u64)-1/2", u64::MAX / 2),
            ("!5", 0),
            ("!0", 1),
            ("1<<65", 2),
            ("-8>>65", 4_u64.wrapping_neg()),
            ("1&&2", 1),
            ("0||0", 0),
            ("(1==1)+(2!=3)", 2),
        ] {
            assert_eq!(folded(source).map(Value::as_bits), Ok(Some(bits)), "{source}");
        }
    }

    #[test]
    fn the_most_negative_integer_is_read_back() {
        let operand = |source| folded(source).map(Operand::from);
        assert_eq!(operand("1<<63"), Ok(Operand::Integer(1 << 63)));
        assert_eq!(operand("-9223372036854775808"), Ok(Operand::Integer(1 << 63)));
        assert_eq!(operand("-9223372036854775807"), Ok(Operand::Integer(1 - (1 << 63))));
    }

    #[test]
    fn operators_bind_as_in_c() {
        assert_eq!(folded("1+2*3<<1|1"), Ok(Value::Signed(15)));
        assert_eq!(folded("10-2-3"), Ok(Value::Signed(5)));
        assert_eq!(folded("1?0?2:3:4"), Ok(Value::Signed(3)));
        assert_eq!(folded("2.0*-1.5+1"), Ok(Value::Double(-2.0)));
    }

    #[test]
    fn what_has_no_value_is_refused() {
        assert_eq!(folded("1/0"), Err(ParseErrorKind::DivisionByZero));
        assert_eq!(folded("1U % 0"), Err(ParseErrorKind::DivisionByZero));
        assert_eq!(folded("1.5<<1"), Err(ParseErrorKind::NotInteger("<<")));
        assert_eq!(folded("-0f3F800000"), Err(ParseErrorKind::NotInteger("-")));
        assert_eq!(folded("0x"), Err(ParseErrorKind::Number("0x".to_string())));
    }
}
