//! Instructions with blanks to be filled in.
//!
//! `add(|.sat).s32 $R, $r, $r` is one of the alternatives in brackets, with a work register of 32 bits to write and two
//! registers to read. Small letters are the kinds that [`crate::values`] lists; capitals are work registers to write:
//! `P`, `H`, `R`, `D` for predicates, 16, 32 and 64 bits. `$<0..31>` is a number, both ends included. Instructions that
//! belong together stand in one template, between semicolons.

use crate::random::Random;
use crate::values::Kind;

/// How many work registers there are of each width.
fn work_registers(letter: char) -> u32 {
    match letter {
        'p' => 6,
        'r' => 12,
        _ => 8,
    }
}

/// How many inputs there are of each kind.
const INPUTS: u32 = 4;

/// What may stand in the blanks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filling {
    /// In how many of a hundred cases a register that may have been written is read, instead of an input.
    pub(crate) computed: u32,
    /// Whether there are inputs at all.
    pub(crate) inputs: bool,
    /// At most so many work registers of each width.
    pub(crate) most: u32,
}

/// Registers are inputs or computed, half and half.
pub(crate) const CHAINED: Filling = Filling { computed: 50, inputs: true, most: 32 };
/// Nothing that was computed is read.
pub(crate) const FLAT: Filling = Filling { computed: 0, inputs: true, most: 32 };

/// The template with everything filled in.
pub(crate) fn fill(template: &str, random: &mut Random, filling: Filling) -> String {
    let chosen = choose(template, random);
    let (mut text, mut written, mut read) = (String::new(), Vec::new(), Vec::new());
    let mut rest = chosen.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        rest = match after.strip_prefix('<') {
            Some(range) => {
                let (range, rest) = range.split_once('>').unwrap_or((range, ""));
                text.push_str(&number(range, random).to_string());
                rest
            }
            None => {
                let letter = after.chars().next().unwrap_or('r');
                let name = if letter.is_ascii_uppercase() {
                    destination(letter.to_ascii_lowercase(), &mut written, random, filling)
                } else {
                    source(letter, &mut read, random, filling)
                };
                text.push_str(&name);
                &after[1..]
            }
        };
    }
    text.push_str(rest);
    text
}

/// One of the alternatives in each pair of brackets; brackets do not nest.
fn choose(template: &str, random: &mut Random) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('(') {
        let (alternatives, behind) = after.split_once(')').unwrap_or((after, ""));
        text.push_str(before);
        let alternatives: Vec<&str> = alternatives.split('|').collect();
        text.push_str(random.pick(&alternatives));
        rest = behind;
    }
    text.push_str(rest);
    text
}

/// A number of `first..last`.
fn number(range: &str, random: &mut Random) -> i64 {
    let (first, last) = range.split_once("..").unwrap_or((range, range));
    let [first, last]: [i64; 2] = [first, last].map(|end| end.parse().unwrap_or_default());
    let span = u32::try_from(last - first + 1).unwrap_or(1);
    first + i64::from(random.below(span))
}

/// A register to write.
fn destination(letter: char, written: &mut Vec<String>, random: &mut Random, filling: Filling) -> String {
    another(&format!("%w{letter}"), work_registers(letter).min(filling.most), written, random)
}

/// A register to read.
fn source(letter: char, read: &mut Vec<String>, random: &mut Random, filling: Filling) -> String {
    let Some(kind) = Kind::from_letter(letter) else { return format!("unknown_kind_{letter}") };
    if !filling.inputs || (kind.takes_computed() && random.percent(filling.computed)) {
        let letter = kind.work_letter();
        return another(&format!("%w{letter}"), work_registers(letter).min(filling.most), read, random);
    }
    another(&format!("%i{letter}"), INPUTS, read, random)
}

/// One of so many registers; another one each time within a statement, as long as there are some: a compiler makes
/// something else of `min x, x`.
fn another(prefix: &str, count: u32, taken: &mut Vec<String>, random: &mut Random) -> String {
    let first = random.below(count);
    let names = (0..count).map(|step| format!("{prefix}{}", (first + step) % count));
    let name = names.into_iter().find(|name| !taken.contains(name)).unwrap_or_else(|| format!("{prefix}{first}"));
    taken.push(name.clone());
    name
}

/// Whether all that the template reads and writes is in registers of 32 bits.
pub(crate) fn is_narrow(template: &str) -> bool {
    let mut blanks = template.match_indices('$').filter_map(|(at, _)| template[at + 1..].chars().next());
    blanks.all(|letter| matches!(letter, 'R' | 'r' | 'f' | 's' | 'x' | 'y' | '<'))
}
