//! Why modules cannot be run.

/// Why modules cannot be run at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// A name is used that no module defines.
    Unresolved {
        /// The name.
        name: String,
        /// Where it is used, if in code.
        line: Option<u32>,
    },
    /// Two modules define the same name.
    Duplicate {
        /// The name.
        name: String,
    },
    /// There is no memory for a variable.
    NoMemory {
        /// The variable.
        name: String,
        /// In bytes.
        size: u64,
    },
    /// A variable that cannot be.
    BadVariable {
        /// The variable.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An instruction without which nothing of the module makes sense, and which cannot be run.
    NotSupported {
        /// Its text.
        text: String,
        /// Its line.
        line: u32,
        /// Why not.
        reason: &'static str,
    },
    /// Something that is no instruction, or an instruction whose operands make no sense.
    BadInstruction {
        /// Its text.
        text: String,
        /// Its line.
        line: u32,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unresolved { name, line: Some(line) } => write!(f, "line {line}: unresolved symbol '{name}'"),
            Self::Unresolved { name, line: None } => write!(f, "unresolved symbol '{name}'"),
            Self::Duplicate { name } => write!(f, "symbol '{name}' is defined more than once"),
            Self::NoMemory { name, size } => write!(f, "no memory for variable '{name}' of {size} bytes"),
            Self::BadVariable { name, reason } => write!(f, "variable '{name}': {reason}"),
            Self::NotSupported { text, line, reason } | Self::BadInstruction { text, line, reason } => {
                write!(f, "line {line}: {reason}: '{text}'")
            }
        }
    }
}

impl DecodeError {
    /// Where in the source it is, if in code.
    pub(crate) fn line(&self) -> Option<u32> {
        match self {
            Self::Unresolved { line, .. } => *line,
            Self::NotSupported { line, .. } | Self::BadInstruction { line, .. } => Some(*line),
            _ => None,
        }
    }

    /// The error without its line.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::NotSupported { text, reason, .. } | Self::BadInstruction { text, reason, .. } => {
                format!("{reason}: '{text}'")
            }
            Self::Unresolved { name, .. } => format!("Unknown symbol '{name}'"),
            other => other.to_string(),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Why an instruction was not decoded.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It cannot be run, but it may be right.
    Unsupported,
    /// It cannot be run, and its module is not loaded for that.
    NotSupported(&'static str),
    /// It is wrong.
    Wrong(&'static str),
    /// It uses a name that is not there.
    Unresolved(String),
}

pub(super) type Decoded<T> = Result<T, Refusal>;
