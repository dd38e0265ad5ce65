//! A module's text, and what it says of where it came from.

use detshare_ptx::ast::{Item, Module};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A module's text.
pub(super) struct SourceText {
    pub(super) text: Arc<str>,
    /// Where each line starts.
    pub(super) line_starts: Vec<u32>,
    /// What `.file` names, by number.
    pub(super) files: Arc<BTreeMap<u32, String>>,
    /// Whether the driver's compiler leaves instructions as they are.
    pub(super) is_for_debugger: bool,
}

impl SourceText {
    pub(super) fn new(module: &Module, text: &str) -> Self {
        let directives = module.items.iter().filter_map(|item| match item {
            Item::Directive(directive) => file(&directive.text),
            _ => None,
        });
        Self {
            text: text.into(),
            line_starts: line_starts(text),
            files: Arc::new(directives.collect()),
            is_for_debugger: module.targets.iter().any(|target| target == "debug"),
        }
    }
}

fn line_starts(source: &str) -> Vec<u32> {
    let after_newlines = source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
    core::iter::once(0).chain(after_newlines).map(|at| u32::try_from(at).unwrap_or(u32::MAX)).collect()
}

/// `.file 1 "name"`
fn file(directive: &str) -> Option<(u32, String)> {
    let (number, name) = directive.strip_prefix(".file")?.split_once('"')?;
    let (name, _) = name.rsplit_once('"')?;
    Some((number.trim().parse().ok()?, name.to_string()))
}
