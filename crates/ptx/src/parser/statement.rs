//! The statements of a body.

use super::{Parsed, Parser};
use crate::ast::{BranchTable, Directive, Instruction, Label, Linkage, Predicate, Statement, TableKind};
use crate::lexer::Token;

impl Parser<'_> {
    /// `{…}`
    pub(super) fn block(&mut self) -> Parsed<Vec<Statement>> {
        self.expect(Token::OpenBrace, "'{'")?;
        let mut statements = Vec::new();
        while self.token() != Token::CloseBrace {
            statements.push(self.statement()?);
        }
        self.advance();
        Ok(statements)
    }

    fn statement(&mut self) -> Parsed<Statement> {
        match self.token() {
            Token::OpenBrace => Ok(Statement::Block(self.nested(Self::block)?)),
            Token::Dotted => self.dotted_statement(),
            Token::Word if self.second_token() == Token::Colon => self.label(),
            Token::Word | Token::At => self.instruction_or_raw(),
            Token::EndOfFile => Err(self.unexpected("'}'")),
            _ => Err(self.unexpected("a statement")),
        }
    }

    fn dotted_statement(&mut self) -> Parsed<Statement> {
        let start = self.start();
        let linkage = self.linkage();
        if self.space().is_some() {
            return Ok(Statement::Variable(self.variable(start, linkage)?));
        }
        if linkage != Linkage::Internal {
            return Err(self.unexpected("a state space"));
        }
        Ok(Statement::Directive(self.directive()?))
    }

    /// `name:`, with the table that it names where one follows.
    fn label(&mut self) -> Parsed<Statement> {
        let start = self.start();
        let name = self.name("a label")?;
        self.expect(Token::Colon, "':'")?;
        let kind = match self.text() {
            ".branchtargets" => {
                self.advance();
                TableKind::Targets(self.names()?)
            }
            ".calltargets" => {
                self.advance();
                TableKind::CallTargets(self.names()?)
            }
            ".callprototype" => {
                self.advance();
                TableKind::CallPrototype {
                    returns: self.parameters()?,
                    name: self.name("a name or '_'")?,
                    parameters: self.parameters()?,
                    directives: self.function_directives()?,
                }
            }
            _ => return Ok(Statement::Label(Label { name, span: self.span_from(start) })),
        };
        self.expect(Token::Semicolon, "';'")?;
        Ok(Statement::Table(BranchTable { label: name, kind, span: self.span_from(start) }))
    }

    /// An instruction, as text where its operands have a shape of their own.
    fn instruction_or_raw(&mut self) -> Parsed<Statement> {
        let first = self.position;
        let start = self.start();
        let predicate = self.predicate()?;
        let opcode = self.name("an opcode")?;
        let mut modifiers = Vec::new();
        while self.token() == Token::Dotted {
            modifiers.push(self.text()[1..].to_string());
            self.advance();
        }
        let operands_start = self.position;
        match self.operands(opcode == "call") {
            Ok(operands) => {
                let span = self.span_from(start);
                Ok(Statement::Instruction(Instruction { predicate, opcode, modifiers, operands, span }))
            }
            Err(_) => {
                self.position = first;
                Ok(Statement::Raw(self.raw(start, operands_start)?))
            }
        }
    }

    fn raw(&mut self, start: u32, operands: usize) -> Parsed<Directive> {
        self.pass_to_semicolon(operands)?;
        Ok(self.text_from(start))
    }

    /// `@%p` or `@!%p`, where there is one.
    fn predicate(&mut self) -> Parsed<Option<Predicate>> {
        if !self.eat(Token::At) {
            return Ok(None);
        }
        let negated = self.eat(Token::Exclamation);
        Ok(Some(Predicate { negated, register: self.name("a predicate register")? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Item, Space};

    fn body(text: &str) -> Vec<Statement> {
        let source = format!(".version 8.4 .target sm_90 .address_size 64 .entry k() {{ {text} }}");
        match crate::parse(&source).expect(text).items.pop() {
            Some(Item::Function(function)) => function.body.expect("a body"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn instructions_have_predicate_opcode_and_modifiers() {
        let statements = body("@!%p1 ld.global.L1::no_allocate.L2::128B.v2.f32 {a, b}, [c]; ret;");
        let [Statement::Instruction(load), Statement::Instruction(ret)] = statements.as_slice() else { panic!() };
        assert_eq!(load.predicate, Some(Predicate { negated: true, register: "%p1".to_string() }));
        assert_eq!(load.opcode, "ld");
        assert_eq!(load.modifiers, ["global", "L1::no_allocate", "L2::128B", "v2", "f32"]);
        assert_eq!((ret.predicate.as_ref(), ret.operands.len()), (None, 0));
    }

    #[test]
    fn labels_may_name_tables() {
        let statements = body(
            "a: b: ts: .branchtargets a, b; cs: .calltargets f;
             p: .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[16]) .noreturn;",
        );
        let [Statement::Label(_), Statement::Label(b), Statement::Table(targets), Statement::Table(calls), last] =
            statements.as_slice()
        else {
            panic!("{statements:?}")
        };
        assert_eq!(b.name, "b");
        assert_eq!(targets.kind, TableKind::Targets(vec!["a".to_string(), "b".to_string()]));
        assert_eq!(calls.kind, TableKind::CallTargets(vec!["f".to_string()]));
        let Statement::Table(BranchTable { kind: TableKind::CallPrototype { parameters, directives, .. }, .. }) = last
        else {
            panic!("{last:?}")
        };
        assert_eq!(parameters[0].declarators[0].dimensions, [Some(16)]);
        assert_eq!(directives[0].name, "noreturn");
    }

    #[test]
    fn blocks_have_variables_of_their_own() {
        let statements = body("{ .param .b32 p; .extern .shared .b8 s[]; { ret; } }");
        let [Statement::Block(outer)] = statements.as_slice() else { panic!("{statements:?}") };
        let [Statement::Variable(param), Statement::Variable(shared), Statement::Block(inner)] = outer.as_slice()
        else {
            panic!("{outer:?}")
        };
        assert_eq!((param.space, shared.space, shared.linkage), (Space::Param, Space::Shared, Linkage::Extern));
        assert_eq!(inner.len(), 1);
    }

    #[test]
    fn directives_end_where_they_end() {
        let statements = body(
            ".loc 1 2 3 ret; .loc 1 2 3, function_name $L__info_string0+4, inlined_at 2 3 4
             .pragma \"nounroll\"; .file 2 \"b.cu\", 5, 6 ret;",
        );
        let texts: Vec<&str> = statements
            .iter()
            .map(|statement| match statement {
                Statement::Directive(directive) => directive.text.as_str(),
                _ => "",
            })
            .collect();
        assert_eq!(
            texts,
            [
                ".loc 1 2 3",
                "",
                ".loc 1 2 3, function_name $L__info_string0+4, inlined_at 2 3 4",
                ".pragma \"nounroll\";",
                ".file 2 \"b.cu\", 5, 6",
                ""
            ]
        );
    }
}
