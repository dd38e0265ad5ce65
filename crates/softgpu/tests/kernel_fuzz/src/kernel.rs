//! A kernel as the generator makes it: statements over registers that all hold something from the start, so that a
//! kernel with any statement taken out is a kernel still.
//!
//! | register | what it is |
//! | --- | --- |
//! | `%w` + letter + number | a work register: read and written, part of the answer |
//! | `%i` + letter + number | an input: never written |
//! | `%c` + number, `%n` + number | conditions and counters of control flow |
//! | `%out`, `%in`, `%scratch`, `%table` | the thread's row of output and input; words for all threads; words to read |
//! | `%thread`, `%tid0`, `%lane` | number of the thread in the grid, in its block, in its warp |
//!
//! What a register begins with depends on the kernel, the register's name and the thread, not on what else there is.

use crate::random::{Random, hash_text};
use crate::values::Kind;
use std::collections::BTreeSet;
use std::fmt::Write;

/// What a generated kernel stands behind. The newest that a driver of CUDA 13.0 takes is 9.0.
pub const MODULE_HEADER: &str = ".version 8.8\n.target sm_90\n.address_size 64\n";

/// Bytes from register to register in a row.
pub(crate) const COLUMN: usize = 8;

#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// One instruction or a few that belong together.
    Text(String),
    /// Control flow: what comes before each inner part, the part, and what closes the last.
    Block { parts: Vec<(String, Vec<Self>)>, tail: String },
}

/// A function that a kernel calls.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    /// Everything up to and with the opening brace and the registers.
    pub(crate) head: String,
    pub(crate) body: Vec<Statement>,
    pub(crate) tail: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Blocks in a cluster; 1 is none.
    pub(crate) cluster: u32,
    /// Variables of the module and functions, before the kernel.
    pub(crate) outside: String,
    pub(crate) functions: Vec<Function>,
    /// Variables of the kernel.
    pub(crate) declarations: String,
    pub(crate) body: Vec<Statement>,
    /// Words that all threads share, 0 at first and part of the answer.
    pub(crate) scratch_words: usize,
    /// Words that all threads can read.
    pub(crate) table: Option<(usize, Kind)>,
    /// Decides the inputs.
    pub(crate) data: Random,
}

/// A register that the kernel begins with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) work: bool,
}

impl Register {
    fn declared_type(&self) -> &'static str {
        match self.kind.work_letter() {
            'p' => ".pred",
            'h' => ".b16",
            'd' => ".b64",
            _ => ".b32",
        }
    }
}

impl Kernel {
    pub(crate) fn threads(&self) -> usize {
        self.grid.iter().chain(&self.block).map(|size| *size as usize).product()
    }

    /// The registers that its statements name, in the order of their columns.
    pub(crate) fn registers(&self) -> Vec<Register> {
        let mut names = BTreeSet::new();
        for_each_text(&self.body, &mut |text| collect_registers(text, &mut names));
        names.into_iter().filter_map(|name| register(&name)).collect()
    }

    /// Those whose values are part of the answer.
    pub(crate) fn outputs(&self) -> Vec<Register> {
        self.registers().into_iter().filter(|register| register.work).collect()
    }

    pub(crate) fn output_words(&self) -> usize {
        self.threads() * self.outputs().len() * (COLUMN / 4) + self.scratch_words
    }

    /// What the thread's register holds at first.
    pub(crate) fn initial(&self, register: &Register, thread: usize) -> u64 {
        let mut random = self.data.part(hash_text(&register.name)).part(thread as u64);
        register.kind.value(&mut random)
    }

    /// The input buffer.
    pub(crate) fn input(&self) -> Vec<u32> {
        let registers = self.registers();
        let mut words = Vec::with_capacity(self.threads() * registers.len() * 2);
        for thread in 0..self.threads() {
            for register in &registers {
                let value = self.initial(register, thread);
                words.extend([low_word(value), low_word(value >> 32)]);
            }
        }
        if let Some((length, kind)) = self.table {
            let mut random = self.data.part(hash_text("table"));
            let (rows, wide) = (words.len(), kind.work_letter() == 'd');
            while words.len() < rows + length {
                let value = kind.value(&mut random);
                words.push(low_word(value));
                words.extend(wide.then(|| low_word(value >> 32)));
            }
        }
        words
    }

    /// The kernel with all that it needs, to stand behind [`MODULE_HEADER`].
    pub(crate) fn ptx(&self) -> String {
        let registers = self.registers();
        let mut text = self.outside.clone();
        for function in &self.functions {
            text.push_str(&function.head);
            print(&mut text, &function.body);
            let _ = writeln!(text, "{}", function.tail);
        }
        let _ = writeln!(text, "// class {}", self.class);
        let _ = writeln!(text, ".visible .entry {}(.param .u64 out, .param .u64 in)", self.name);
        if self.cluster > 1 {
            let _ = writeln!(text, ".reqnctapercluster {}", self.cluster);
        }
        text.push_str("{\n");
        text.push_str(&self.declarations);
        self.declare(&mut text, &registers);
        self.load(&mut text, &registers);
        print(&mut text, &self.body);
        store(&mut text, &registers);
        text.push_str("ret;\n}\n");
        text
    }

    fn declare(&self, text: &mut String, registers: &[Register]) {
        text.push_str(".reg .b64 %out, %in, %scratch, %table, %wide0;\n");
        text.push_str(".reg .b32 %thread, %tid0, %lane, %word0, %word1;\n.reg .pred %flag0;\n");
        for ty in [".pred", ".b16", ".b32", ".b64"] {
            let names: Vec<_> =
                registers.iter().filter(|it| it.declared_type() == ty).map(|it| it.name.as_str()).collect();
            if !names.is_empty() {
                let _ = writeln!(text, ".reg {ty} {};", names.join(", "));
            }
        }
        for (prefix, ty) in [("%c", ".pred"), ("%n", ".b32")] {
            let mut names = BTreeSet::new();
            for_each_text(&self.body, &mut |statement| collect_numbered(statement, prefix, &mut names));
            if !names.is_empty() {
                let _ = writeln!(text, ".reg {ty} {};", names.into_iter().collect::<Vec<_>>().join(", "));
            }
        }
    }

    /// Who the thread is, where its rows are, and what its registers hold.
    fn load(&self, text: &mut String, registers: &[Register]) {
        text.push_str("mov.u32 %tid0, %tid.x;\nmov.u32 %lane, %laneid;\nmov.u32 %thread, %ctaid.x;\n");
        let per_block: u32 = self.block.iter().product();
        if self.grid[1] * self.grid[2] > 1 {
            for (axis, size) in [("y", self.grid[0]), ("z", self.grid[0] * self.grid[1])] {
                let _ = writeln!(text, "mov.u32 %word0, %ctaid.{axis};\nmad.lo.u32 %thread, %word0, {size}, %thread;");
            }
        }
        if self.block[1] * self.block[2] > 1 {
            for (axis, size) in [("y", self.block[0]), ("z", self.block[0] * self.block[1])] {
                let _ = writeln!(text, "mov.u32 %word0, %tid.{axis};\nmad.lo.u32 %tid0, %word0, {size}, %tid0;");
            }
        }
        let _ = writeln!(text, "mad.lo.u32 %thread, %thread, {per_block}, %tid0;");
        let outputs = registers.iter().filter(|register| register.work).count() * COLUMN;
        let inputs = registers.len() * COLUMN;
        for (name, stride, shared) in [("out", outputs, "scratch"), ("in", inputs, "table")] {
            let _ = writeln!(text, "ld.param.u64 %{name}, [{name}];\ncvta.to.global.u64 %{name}, %{name};");
            let _ = writeln!(text, "add.u64 %{shared}, %{name}, {};", stride * self.threads());
            let _ = writeln!(text, "mul.wide.u32 %wide0, %thread, {stride};\nadd.u64 %{name}, %{name}, %wide0;");
        }
        for (column, register) in registers.iter().enumerate() {
            let (name, at) = (&register.name, column * COLUMN);
            let _ = match register.declared_type() {
                ".pred" => writeln!(text, "ld.global.b32 %word0, [%in+{at}];\nsetp.ne.u32 {name}, %word0, 0;"),
                ty => writeln!(text, "ld.global{ty} {name}, [%in+{at}];"),
            };
        }
    }
}

fn store(text: &mut String, registers: &[Register]) {
    for (column, register) in registers.iter().filter(|register| register.work).enumerate() {
        let (name, at) = (&register.name, column * COLUMN);
        let _ = match register.declared_type() {
            ".pred" => writeln!(text, "selp.b32 %word0, 1, 0, {name};\nst.global.b32 [%out+{at}], %word0;"),
            ".b16" => writeln!(text, "cvt.u32.u16 %word0, {name};\nst.global.b32 [%out+{at}], %word0;"),
            ty => writeln!(text, "st.global{ty} [%out+{at}], {name};"),
        };
    }
}

fn print(text: &mut String, statements: &[Statement]) {
    for statement in statements {
        match statement {
            Statement::Text(line) => {
                let _ = writeln!(text, "{line}");
            }
            Statement::Block { parts, tail } => {
                for (head, body) in parts {
                    let _ = writeln!(text, "{head}");
                    print(text, body);
                }
                let _ = writeln!(text, "{tail}");
            }
        }
    }
}

fn for_each_text(statements: &[Statement], visit: &mut impl FnMut(&str)) {
    for statement in statements {
        match statement {
            Statement::Text(text) => visit(text),
            Statement::Block { parts, tail } => {
                for (head, body) in parts {
                    visit(head);
                    for_each_text(body, visit);
                }
                visit(tail);
            }
        }
    }
}

fn low_word(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
}

/// The names in a text that begin with that and go on with digits.
fn collect_numbered(text: &str, prefix: &str, names: &mut BTreeSet<String>) {
    for (at, _) in text.match_indices(prefix) {
        let digits = text[at + prefix.len()..].bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            names.insert(text[at..at + prefix.len() + digits].into());
        }
    }
}

/// The work and input registers in a text.
fn collect_registers(text: &str, names: &mut BTreeSet<String>) {
    for prefix in ["%w", "%i"] {
        for (at, _) in text.match_indices(prefix) {
            if let Some(letter) = text[at + 2..].chars().next().filter(char::is_ascii_lowercase) {
                collect_numbered(&text[at..], &format!("{prefix}{letter}"), names);
            }
        }
    }
}

fn register(name: &str) -> Option<Register> {
    let work = name.starts_with("%w");
    let kind = Kind::from_letter(name.chars().nth(2)?)?;
    Some(Register { name: name.into(), kind, work })
}
