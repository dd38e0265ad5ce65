//! Variables, parameters and what they are initialized with.

use super::constant::Value;
use super::{Parsed, Parser};
use crate::ast::{Declarator, InitValue, Initializer, Linkage, Pointer, Space, Symbol, Variable};
use crate::error::ParseErrorKind;
use crate::lexer::Token;
use crate::scalar_type::ScalarType;

impl Parser<'_> {
    /// A declaration from its state space to its semicolon.
    pub(super) fn variable(&mut self, start: u32, linkage: Linkage) -> Parsed<Variable> {
        let mut variable = self.variable_head(linkage)?;
        loop {
            let declarator = self.declarator()?;
            variable.declarators.push(declarator);
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::Semicolon, "',' or ';'")?;
        variable.span = self.span_from(start);
        Ok(variable)
    }

    /// One parameter or result of a function.
    pub(super) fn parameter(&mut self) -> Parsed<Variable> {
        let start = self.start();
        let mut variable = self.variable_head(Linkage::Internal)?;
        let declarator = self.declarator()?;
        variable.declarators.push(declarator);
        variable.span = self.span_from(start);
        Ok(variable)
    }

    /// Everything before the names.
    fn variable_head(&mut self, linkage: Linkage) -> Parsed<Variable> {
        let Some(space) = self.space() else { return Err(self.unexpected("a state space")) };
        self.advance();
        let attributes = self.attributes()?;
        let mut align = None;
        let mut vector = None;
        let mut ty = None;
        let mut pointer = None;
        while self.token() == Token::Dotted {
            let text = &self.text()[1..];
            if text == "ptr" {
                pointer = Some(self.pointer()?);
                continue;
            }
            if self.eat_dotted(".align") {
                align = Some(self.small_number("an alignment")?);
                continue;
            }
            match (text, ScalarType::from_name(text)) {
                ("v2", _) => vector = Some(2),
                ("v4", _) => vector = Some(4),
                ("v8", _) => vector = Some(8),
                (_, Some(scalar)) if ty.is_none() => ty = Some(scalar),
                _ => return Err(self.unexpected(if ty.is_none() { "a type" } else { "a name" })),
            }
            self.advance();
        }
        let Some(ty) = ty else { return Err(self.unexpected("a type")) };
        let declarators = Vec::new();
        let span = self.span_from(self.start());
        Ok(Variable { linkage, space, align, vector, ty, attributes, pointer, declarators, span })
    }

    /// `.ptr`, `.ptr .global`, `.ptr .global .align 4`
    fn pointer(&mut self) -> Parsed<Pointer> {
        self.advance();
        let space = self.space();
        if space.is_some() {
            self.advance();
        }
        let align = match self.eat_dotted(".align") {
            true => Some(self.small_number("an alignment")?),
            false => None,
        };
        Ok(Pointer { space, align })
    }

    /// What `.attribute(…)` lists, where there is one.
    pub(super) fn attributes(&mut self) -> Parsed<Vec<String>> {
        let mut attributes = Vec::new();
        if !self.eat_dotted(".attribute") {
            return Ok(attributes);
        }
        self.expect(Token::OpenParenthesis, "'('")?;
        loop {
            let start = self.start();
            self.expect(Token::Dotted, "an attribute")?;
            if self.eat(Token::OpenParenthesis) {
                while self.token() != Token::CloseParenthesis {
                    self.expect(Token::Number, "a number or ')'")?;
                    self.eat(Token::Comma);
                }
                self.advance();
            }
            attributes.push(self.text_from(start).text);
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::CloseParenthesis, "',' or ')'")?;
        Ok(attributes)
    }

    fn declarator(&mut self) -> Parsed<Declarator> {
        let name = self.name("a name")?;
        let count = match self.eat(Token::Less) {
            true => {
                let count = self.small_number("a number of registers")?;
                self.expect(Token::Greater, "'>'")?;
                Some(count)
            }
            false => None,
        };
        let mut dimensions = Vec::new();
        while self.eat(Token::OpenBracket) {
            let dimension = match self.token() {
                Token::CloseBracket => None,
                _ => Some(self.unsigned("a dimension")?),
            };
            self.expect(Token::CloseBracket, "']'")?;
            dimensions.push(dimension);
        }
        let initializer = match self.eat(Token::Equals) {
            true => Some(self.nested(Self::initializer)?),
            false => None,
        };
        Ok(Declarator { name, count, dimensions, initializer })
    }

    fn initializer(&mut self) -> Parsed<Initializer> {
        if self.eat(Token::OpenBrace) {
            let mut elements = Vec::new();
            if self.eat(Token::CloseBrace) {
                return Ok(Initializer::List(elements));
            }
            loop {
                elements.push(self.nested(Self::initializer)?);
                if !self.eat(Token::Comma) {
                    self.expect(Token::CloseBrace, "',' or '}'")?;
                    return Ok(Initializer::List(elements));
                }
            }
        }
        if self.token() == Token::Word && self.second_token() == Token::Equals {
            let name = self.name("a name")?;
            self.advance();
            return Ok(Initializer::Field { name, value: self.init_value()? });
        }
        Ok(Initializer::Value(self.init_value()?))
    }

    fn init_value(&mut self) -> Parsed<InitValue> {
        if self.token() == Token::Number && self.second_token() == Token::OpenParenthesis {
            let mask = self.literal()?;
            let Some(mask) = mask.as_unsigned() else { return Err(self.unexpected("an integer as mask")) };
            self.advance();
            let symbol = self.symbol()?;
            self.expect(Token::CloseParenthesis, "')'")?;
            return Ok(InitValue::Mask { mask, symbol });
        }
        if self.is_variable(self.position) {
            return Ok(InitValue::Symbol(self.symbol()?));
        }
        Ok(self.constant()?.into())
    }

    /// `name`, `name+4`, `generic(name)`, `generic(name)+4`
    fn symbol(&mut self) -> Parsed<Symbol> {
        let generic = self.text() == "generic" && self.second_token() == Token::OpenParenthesis;
        if generic {
            self.advance();
            self.advance();
        }
        let name = self.name("the name of a variable or function")?;
        if generic {
            self.expect(Token::CloseParenthesis, "')'")?;
        }
        Ok(Symbol { name, offset: self.offset()?, generic })
    }

    /// `+4`, or nothing.
    pub(super) fn offset(&mut self) -> Parsed<i64> {
        if !self.eat(Token::Plus) {
            return Ok(0);
        }
        let at = self.start();
        let value = self.constant()?;
        value.as_signed().ok_or_else(|| value.out_of_range(at, "an offset"))
    }

    /// A literal that fits 32 bits.
    pub(super) fn small_number(&mut self, place: &'static str) -> Parsed<u32> {
        let at = self.start();
        if self.token() != Token::Number {
            return Err(self.unexpected(place));
        }
        let value = self.literal()?;
        let small = value.as_unsigned().and_then(|value| u32::try_from(value).ok());
        small.ok_or_else(|| value.out_of_range(at, place))
    }

    /// A constant that is not negative.
    fn unsigned(&mut self, place: &'static str) -> Parsed<u64> {
        let at = self.start();
        let value = self.constant()?;
        value.as_unsigned().ok_or_else(|| value.out_of_range(at, place))
    }
}

impl Space {
    /// The space with that name, written without its dot: `global`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "reg" => Self::Reg,
            "sreg" => Self::Sreg,
            "const" => Self::Const,
            "global" => Self::Global,
            "local" => Self::Local,
            "param" => Self::Param,
            "shared" => Self::Shared,
            "tex" => Self::Tex,
            _ => return None,
        })
    }
}

impl Value {
    fn out_of_range(self, offset: u32, place: &'static str) -> super::Failure {
        super::Failure { offset, kind: ParseErrorKind::OutOfRange { value: self.to_string(), place } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Item;

    fn variable(text: &str) -> Variable {
        let source = format!(".version 8.4 .target sm_90 .address_size 64 {text}");
        match crate::parse(&source).expect(text).items.pop() {
            Some(Item::Variable(variable)) => variable,
            other => panic!("{other:?}"),
        }
    }

    fn initializer(text: &str) -> Initializer {
        variable(&format!(".global .u64 x = {text};")).declarators.remove(0).initializer.expect("an initializer")
    }

    fn symbol(name: &str, offset: i64, generic: bool) -> Symbol {
        Symbol { name: name.to_string(), offset, generic }
    }

    #[test]
    fn declarations_have_all_their_parts() {
        let found = variable(".visible .global .attribute(.managed, .unified(1, 2)) .align 16 .v4 .f32 x[2][], y<3>;");
        assert_eq!((found.linkage, found.space, found.align), (Linkage::Visible, Space::Global, Some(16)));
        assert_eq!((found.vector, found.ty), (Some(4), ScalarType::F32));
        assert_eq!(found.attributes, [".managed", ".unified(1, 2)"]);
        assert_eq!(found.declarators[0].dimensions, [Some(2), None]);
        assert_eq!(found.declarators[1].count, Some(3));
    }

    #[test]
    fn parameters_may_point_somewhere() {
        let source = ".version 8.4 .target sm_90 .entry k(.param .u64 .ptr .global .align 4 x, .param .u64.ptr y)";
        let module = crate::parse(&format!("{source};")).expect("parses");
        let [Item::Function(kernel)] = module.items.as_slice() else { panic!("one kernel") };
        let pointers: Vec<_> = kernel.parameters.iter().map(|parameter| parameter.pointer).collect();
        assert_eq!(
            pointers,
            [Some(Pointer { space: Some(Space::Global), align: Some(4) }), Some(Pointer { space: None, align: None })]
        );
    }

    #[test]
    fn initializers_name_symbols() {
        let value = |value| Initializer::Value(value);
        assert_eq!(initializer("f"), value(InitValue::Symbol(symbol("f", 0, false))));
        assert_eq!(initializer("generic(a)+2*4"), value(InitValue::Symbol(symbol("a", 8, true))));
        assert_eq!(
            initializer("{a+-4, -1}"),
            Initializer::List(vec![value(InitValue::Symbol(symbol("a", -4, false))), value(InitValue::Integer(-1))])
        );
        assert_eq!(
            initializer("0xFF00(generic(a)+4)"),
            value(InitValue::Mask { mask: 0xff00, symbol: symbol("a", 4, true) })
        );
    }

    #[test]
    fn samplers_have_fields() {
        assert_eq!(
            initializer("{filter_mode = nearest, width = 5}"),
            Initializer::List(vec![
                Initializer::Field {
                    name: "filter_mode".to_string(),
                    value: InitValue::Symbol(symbol("nearest", 0, false))
                },
                Initializer::Field { name: "width".to_string(), value: InitValue::Integer(5) },
            ])
        );
    }
}
