//! What code was compiled from, as its `.loc` directives say.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A place in a function's [`LineTable`]; the default one is nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Origin(u32);

/// The places that a function's code came from.
#[derive(Debug, Default)]
pub(super) struct LineTable {
    files: Arc<BTreeMap<u32, String>>,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    file: u32,
    line: u32,
    /// File and line of the call, where code was taken into another function.
    inlined_at: Option<(u32, u32)>,
}

impl LineTable {
    pub(super) fn new(files: &Arc<BTreeMap<u32, String>>) -> Self {
        Self { files: Arc::clone(files), places: Vec::new() }
    }

    /// Takes a directive; None where it is not `.loc`.
    pub(super) fn note(&mut self, directive: &str) -> Option<Origin> {
        let rest = directive.strip_prefix(".loc")?;
        let mut parts = rest.split(',');
        let (file, line) = file_and_line(parts.next()?)?;
        let inlined_at = parts.find_map(|part| file_and_line(part.trim().strip_prefix("inlined_at")?));
        // Compilers give line 0 to what has no place of its own.
        if line == 0 {
            return Some(Origin::default());
        }
        let place = Place { file, line, inlined_at };
        if self.places.last() != Some(&place) {
            self.places.push(place);
        }
        Some(Origin(u32::try_from(self.places.len()).unwrap_or_default()))
    }

    /// `kernel.cu:12`, and where it was called from.
    pub(super) fn describe(&self, origin: Origin) -> Option<String> {
        let place = self.places.get(origin.0.checked_sub(1)? as usize)?;
        let file = |number: u32| self.files.get(&number).map_or_else(|| format!("file {number}"), Clone::clone);
        let mut words = format!("{}:{}", file(place.file), place.line);
        if let Some((caller, line)) = place.inlined_at {
            words += &format!(", inlined at {}:{line}", file(caller));
        }
        Some(words)
    }
}

/// `1 23 4`: file, line and column.
fn file_and_line(numbers: &str) -> Option<(u32, u32)> {
    let mut numbers = numbers.split_whitespace();
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
