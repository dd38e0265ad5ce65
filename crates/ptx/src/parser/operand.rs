//! The operands of an instruction.

use super::{Parsed, Parser};
use crate::ast::{AddressBase, Operand};
use crate::lexer::Token;

impl Parser<'_> {
    /// All operands, and the semicolon. Only a call has lists in parentheses; elsewhere they are constants.
    pub(super) fn operands(&mut self, call: bool) -> Parsed<Vec<Operand>> {
        let mut operands = Vec::new();
        if self.eat(Token::Semicolon) {
            return Ok(operands);
        }
        loop {
            operands.push(match self.token() {
                Token::OpenParenthesis if call => {
                    self.advance();
                    Operand::List(self.elements(Token::CloseParenthesis, "',' or ')'")?)
                }
                _ => self.operand()?,
            });
            if !self.eat(Token::Comma) {
                self.expect(Token::Semicolon, "',' or ';'")?;
                return Ok(operands);
            }
        }
    }

    /// Operands with commas between them, and the bracket that closes them.
    fn elements(&mut self, close: Token, expected: &'static str) -> Parsed<Vec<Operand>> {
        let mut elements = Vec::new();
        if self.eat(close) {
            return Ok(elements);
        }
        loop {
            elements.push(self.nested(Self::operand)?);
            if !self.eat(Token::Comma) {
                self.expect(close, expected)?;
                return Ok(elements);
            }
        }
    }

    fn operand(&mut self) -> Parsed<Operand> {
        let first = self.single_operand()?;
        if !self.eat(Token::Bar) {
            return Ok(first);
        }
        let second = self.single_operand()?;
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn single_operand(&mut self) -> Parsed<Operand> {
        match self.token() {
            Token::OpenBrace => {
                self.advance();
                Ok(Operand::Vector(self.elements(Token::CloseBrace, "',' or '}'")?))
            }
            Token::OpenBracket => {
                self.advance();
                self.address()
            }
            Token::Exclamation if self.is_variable(self.second()) => {
                self.advance();
                Ok(Operand::Not(Box::new(Operand::Name(self.component_name()?))))
            }
            Token::Minus if self.is_variable(self.second()) => {
                self.advance();
                Ok(Operand::Negative(self.component_name()?))
            }
            Token::Word if self.is_variable(self.position) => {
                let name = self.component_name()?;
                if name == "_" {
                    return Ok(Operand::Sink);
                }
                match self.token() {
                    Token::Plus => Ok(Operand::Offset { name, offset: self.offset()? }),
                    _ => Ok(Operand::Name(name)),
                }
            }
            _ => Ok(self.constant()?.into()),
        }
    }

    /// A name with its component: `%tid.x` is one name.
    fn component_name(&mut self) -> Parsed<String> {
        let mut name = self.name("an operand")?;
        if self.token() == Token::Dotted && self.is_adjacent() {
            name.push_str(self.text());
            self.advance();
        }
        Ok(name)
    }

    /// What follows `[`.
    fn address(&mut self) -> Parsed<Operand> {
        let (base, offset) = if self.is_variable(self.position) {
            (AddressBase::Name(self.component_name()?), self.offset()?)
        } else {
            let value = self.constant()?;
            let Some(address) = value.as_bits() else { return Err(self.unexpected("an integer as address")) };
            (AddressBase::Integer(address), 0)
        };
        if self.eat(Token::Comma) {
            self.expect(Token::OpenBrace, "'{'")?;
            let coordinates = self.elements(Token::CloseBrace, "',' or '}'")?;
            self.expect(Token::CloseBracket, "']'")?;
            return Ok(Operand::Tensor { base, offset, coordinates });
        }
        self.expect(Token::CloseBracket, "'+' or ']'")?;
        Ok(Operand::Address { base, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Item, Statement};

    fn statement(text: &str) -> Statement {
        let source = format!(".version 8.4 .target sm_90 .address_size 64 .entry k() {{ {text} }}");
        let mut module = crate::parse(&source).expect(text).without_spans();
        let Some(Item::Function(kernel)) = module.items.pop() else { panic!("a kernel") };
        kernel.body.and_then(|mut body| body.pop()).expect("a statement")
    }

    fn operands(text: &str) -> Vec<Operand> {
        match statement(text) {
            Statement::Instruction(instruction) => instruction.operands,
            other => panic!("{other:?}"),
        }
    }

    fn name(name: &str) -> Operand {
        Operand::Name(name.to_string())
    }

    #[test]
    fn names_keep_their_component() {
        assert_eq!(operands("mov.u32 %r1, %tid.x;"), [name("%r1"), name("%tid.x")]);
        assert_eq!(
            operands("vadd.s32.s32.s32 d, a.b0, -b.h1;")[1..],
            [name("a.b0"), Operand::Negative("b.h1".to_string())]
        );
    }

    #[test]
    fn constants_are_folded() {
        assert_eq!(operands("mov.u64 x, (1+2)*-3;")[1], Operand::Integer(-9));
        assert_eq!(operands("mov.u64 x, -WARP_SZ;")[1], Operand::Integer(-32));
        assert_eq!(operands("mov.u64 x, 0xffffffffffffffff;")[1], Operand::Integer(u64::MAX.into()));
        assert_eq!(operands("mov.f32 x, 0fBF800000;")[1], Operand::F32((-1.0_f32).to_bits()));
        assert_eq!(operands("mov.f32 x, -1.0;")[1], Operand::F64((-1.0_f64).to_bits()));
    }

    #[test]
    fn addresses_have_a_base_and_an_offset() {
        let address = |base: &str, offset| Operand::Address { base: AddressBase::Name(base.to_string()), offset };
        assert_eq!(operands("ld.u32 %r1, [%rd1];")[1], address("%rd1", 0));
        assert_eq!(operands("ld.u32 %r1, [%rd1+-8];")[1], address("%rd1", -8));
        assert_eq!(operands("ld.u32 %r1, [ table + 4*2 ];")[1], address("table", 8));
        assert_eq!(operands("ld.u32 %r1, [16+4];")[1], Operand::Address { base: AddressBase::Integer(20), offset: 0 });
        assert_eq!(operands("mov.u64 %rd1, table+8;")[1], Operand::Offset { name: "table".to_string(), offset: 8 });
    }

    #[test]
    fn places_in_tensors_have_coordinates() {
        let place = &operands("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [m+64, {%r1, 8}], [s];")[0];
        let coordinates = vec![name("%r1"), Operand::Integer(8)];
        assert_eq!(*place, Operand::Tensor { base: AddressBase::Name("m".to_string()), offset: 64, coordinates });
    }

    #[test]
    fn predicates_come_in_pairs_and_negated() {
        let pair = |first, second| Operand::Pair(Box::new(first), Box::new(second));
        assert_eq!(
            operands("setp.eq.and.u32 p|q, a, 0, !r;"),
            [pair(name("p"), name("q")), name("a"), Operand::Integer(0), Operand::Not(Box::new(name("r")))]
        );
        assert_eq!(operands("elect.sync _|p, -1;")[0], pair(Operand::Sink, name("p")));
    }

    #[test]
    fn calls_have_lists() {
        assert_eq!(
            operands("call.uni (a), f, (b, c), prototype;"),
            [Operand::List(vec![name("a")]), name("f"), Operand::List(vec![name("b"), name("c")]), name("prototype")]
        );
        assert_eq!(operands("call f;"), [name("f")]);
    }

    #[test]
    fn vectors_hold_any_operand() {
        assert_eq!(
            operands("st.v4.b32 [x], {%r1, 2, _, 0f00000000};")[1],
            Operand::Vector(vec![name("%r1"), Operand::Integer(2), Operand::Sink, Operand::F32(0)])
        );
    }

    #[test]
    fn unknown_shapes_are_carried_as_text() {
        for text in [
            "@!p tex.2d.v4.f32.f32 {a, b, c, d}, [t, s, {x, y}]; ",
            "mov.u32 s, a[1];",
            "tex.1d.v4.f32.f32\n {a, b, c, d}, [t, s, // comment\n {x}];",
            "future.thing a => b;",
        ] {
            let Statement::Raw(raw) = statement(text) else { panic!("{text}") };
            assert_eq!(raw.text, text.trim());
        }
    }
}
