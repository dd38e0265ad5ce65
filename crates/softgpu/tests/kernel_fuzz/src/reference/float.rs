//! Floating-point arithmetic, and comparisons of all types.

use super::exact::{Exact, Format, Rounding, search};
use super::{Instruction, Thread, Type};
use std::cmp::Ordering;

pub(super) fn step(thread: &mut Thread, i: &Instruction<'_>) -> Option<()> {
    if matches!(i.opcode, "setp" | "set") {
        return comparison(thread, i);
    }
    if i.opcode == "cvt" {
        return None;
    }
    let (format, pairs) = format(i)?;
    let [d, rest @ ..] = &i.operands[..] else { return None };
    let read: Option<Vec<u64>> = rest.iter().map(|operand| thread.read(operand)).collect();
    let read = read?;
    if i.opcode == "testp" {
        thread.write(d, u64::from(test(format, i, read[0])?));
        return Some(());
    }
    let part = |shift: u32| {
        let width = format.width();
        let operands: Vec<u64> =
            read.iter().map(|word| if width == 64 { *word } else { word >> shift & ((1 << width) - 1) }).collect();
        arithmetic(i, format, &operands)
    };
    let result = if pairs { part(0)? | part(16)? << 16 } else { part(0)? };
    thread.write(d, result);
    Some(())
}

/// The format of an instruction, and whether it works on pairs.
fn format(i: &Instruction<'_>) -> Option<(Format, bool)> {
    match *i.modifiers.last()? {
        "f16x2" => Some((super::exact::F16, true)),
        "bf16x2" => Some((super::exact::BF16, true)),
        name => match Type::parse(name)? {
            Type::Float(format) => Some((format, false)),
            _ => None,
        },
    }
}

fn arithmetic(i: &Instruction<'_>, format: Format, operands: &[u64]) -> Option<u64> {
    let known = matches!(i.opcode, "add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "min" | "max");
    if !known || i.has("approx") || i.has("oob") || i.has("full") {
        return None;
    }
    let flush = i.has("ftz");
    let operands: Vec<u64> = operands.iter().map(|bits| if flush { format.flush(*bits) } else { *bits }).collect();
    if matches!(i.opcode, "min" | "max") {
        return extreme(i, format, &operands);
    }
    let mut bits = result(i.opcode, format, i.rounding(), &operands)?;
    if flush && is_tiny(i, format, &operands, bits)? {
        bits &= format.sign_bit();
    }
    Some(finish(i, format, bits))
}

/// Whether a result is below the smallest normal number when it is rounded as if exponents had no end.
fn is_tiny(i: &Instruction<'_>, format: Format, operands: &[u64], bits: u64) -> Option<bool> {
    let magnitude = format.magnitude(bits);
    if magnitude != format.smallest_normal() {
        return Some(magnitude < format.smallest_normal());
    }
    let Some(compare) = comparer(i.opcode, format, operands) else { return Some(false) };
    let (whole, doubled) = format.parts(magnitude);
    if compare(whole, doubled) == Ordering::Equal {
        return Some(false);
    }
    // It was rounded up from among the subnormal numbers. Numbers of full precision lie twice as close there; the
    // nearest below is half a spacing away, and half of that is where rounding to nearest changes sides.
    Some(match i.rounding() {
        Rounding::Nearest => compare(whole * 4 - 1, doubled - 2) == Ordering::Greater,
        Rounding::Zero | Rounding::Down | Rounding::Up => compare(whole * 2 - 1, doubled - 1) != Ordering::Less,
    })
}

/// What is done to a result before it is written.
fn finish(i: &Instruction<'_>, format: Format, bits: u64) -> u64 {
    let one = ((1u64 << (format.exponent_bits - 1)) - 1) << format.fraction_bits;
    if i.has("sat") {
        return match () {
            () if format.is_nan(bits) || format.is_negative(bits) => 0,
            () => bits.min(one),
        };
    }
    if i.has("relu") && !format.is_nan(bits) && format.is_negative(bits) {
        return 0;
    }
    bits
}

/// How a magnitude compares with that of a result whose operands are finite.
fn comparer(opcode: &str, format: Format, o: &[u64]) -> Option<Box<dyn Fn(u128, i32) -> Ordering>> {
    let of = |bits: u64| Exact::of(format, bits);
    let exact = match (opcode, o) {
        ("add", [a, b]) => of(*a).plus(&of(*b)),
        ("sub", [a, b]) => of(*a).plus(&of(*b ^ format.sign_bit())),
        ("mul", [a, b]) => Exact::product(format, *a, *b),
        ("fma" | "mad", [a, b, c]) => Exact::product(format, *a, *b).plus(&of(*c)),
        // Found by multiplying back.
        ("div", [a, b]) => return Some(quotient(of(*a), format, *b)),
        ("rcp", [b]) => return Some(quotient(Exact::new(false, 1, 0), format, *b)),
        ("sqrt", [a]) => {
            let square = of(*a);
            return Some(Box::new(move |whole, doubled| {
                let candidate = Exact::new(false, whole * whole, doubled * 2);
                candidate.compare_magnitude(&square)
            }));
        }
        _ => return None,
    };
    Some(Box::new(move |whole, doubled| Exact::new(false, whole, doubled).compare_magnitude(&exact)))
}

fn quotient(dividend: Exact, format: Format, divisor: u64) -> Box<dyn Fn(u128, i32) -> Ordering> {
    let (divisor, scale) = format.parts(format.magnitude(divisor));
    Box::new(move |whole, doubled| Exact::new(false, whole * divisor, doubled + scale).compare_magnitude(&dividend))
}

/// The rounded result.
fn result(opcode: &str, format: Format, rounding: Rounding, o: &[u64]) -> Option<u64> {
    if o.iter().any(|bits| format.is_nan(*bits)) {
        // `f64` passes NaNs on, and which one is not defined.
        return Some(format.nan).filter(|_| format != super::exact::F64);
    }
    let negative: Vec<bool> = o.iter().map(|bits| format.is_negative(*bits)).collect();
    let infinite = |at: usize| format.is_infinite(o[at]);
    let zero = |at: usize| format.magnitude(o[at]) == 0;
    let signed = |negative: bool, magnitude: u64| magnitude | if negative { format.sign_bit() } else { 0 };
    let infinity = |negative: bool| Some(signed(negative, format.infinity()));
    let nothing = Some(format.nan);
    match opcode {
        "add" | "sub" => {
            let second = negative[1] != (opcode == "sub");
            match (infinite(0), infinite(1)) {
                (true, true) if negative[0] != second => return nothing,
                (true, _) => return infinity(negative[0]),
                (_, true) => return infinity(second),
                _ => {}
            }
            let exact = Exact::of(format, o[0]).plus(&Exact::of(format, signed(second, format.magnitude(o[1]))));
            Some(rounded_sum(&exact, format, rounding, [negative[0], second]))
        }
        "mul" => {
            let sign = negative[0] != negative[1];
            match (infinite(0) || infinite(1), zero(0) || zero(1)) {
                (true, true) => nothing,
                (true, false) => infinity(sign),
                _ => Some(Exact::product(format, o[0], o[1]).round(format, rounding)),
            }
        }
        "fma" | "mad" => {
            let sign = negative[0] != negative[1];
            match (infinite(0) || infinite(1), zero(0) || zero(1), infinite(2)) {
                (true, true, _) => return nothing,
                (true, false, true) if sign != negative[2] => return nothing,
                (true, false, _) => return infinity(sign),
                (false, _, true) => return infinity(negative[2]),
                _ => {}
            }
            let exact = Exact::product(format, o[0], o[1]).plus(&Exact::of(format, o[2]));
            Some(rounded_sum(&exact, format, rounding, [sign, negative[2]]))
        }
        "div" => {
            let sign = negative[0] != negative[1];
            match (infinite(0), infinite(1), zero(0), zero(1)) {
                (true, true, ..) | (_, _, true, true) => nothing,
                (true, ..) | (_, _, _, true) => infinity(sign),
                (_, true, ..) | (_, _, true, _) => Some(signed(sign, 0)),
                _ => Some(search(format, rounding, sign, comparer("div", format, o)?)),
            }
        }
        "rcp" => match (infinite(0), zero(0)) {
            (true, _) => Some(signed(negative[0], 0)),
            (_, true) => infinity(negative[0]),
            _ => Some(search(format, rounding, negative[0], comparer("rcp", format, o)?)),
        },
        "sqrt" => match (zero(0), negative[0], infinite(0)) {
            (true, ..) => Some(o[0]),
            (_, true, _) => nothing,
            (_, _, true) => infinity(false),
            _ => Some(search(format, rounding, false, comparer("sqrt", format, o)?)),
        },
        _ => None,
    }
}

/// A sum; zero has its sign by the rules for zeros.
fn rounded_sum(exact: &Exact, format: Format, rounding: Rounding, signs: [bool; 2]) -> u64 {
    if !exact.is_zero() {
        return exact.round(format, rounding);
    }
    let negative = if signs[0] == signs[1] { signs[0] } else { rounding == Rounding::Down };
    if negative { format.sign_bit() } else { 0 }
}

/// `min` and `max`.
fn extreme(i: &Instruction<'_>, format: Format, operands: &[u64]) -> Option<u64> {
    let [a, b] = operands[..] else { return None };
    let least = i.opcode == "min";
    let xor_sign = (a ^ b) & format.sign_bit();
    let strip = |bits: u64| if i.has("xorsign") { format.magnitude(bits) } else { bits };
    let (left, right) = (strip(a), strip(b));
    let chosen = match (format.is_nan(a), format.is_nan(b)) {
        (true, true) => return Some(format.nan).filter(|_| format != super::exact::F64),
        (true, _) | (_, true) if i.has("NaN") => return Some(format.nan),
        (true, _) => right,
        (_, true) => left,
        _ => {
            // Zeros have an order too: the one with the sign is less.
            let order = |bits: u64| {
                let magnitude = i128::from(format.magnitude(bits));
                if format.is_negative(bits) { -1 - magnitude } else { magnitude }
            };
            if (order(left) <= order(right)) == least { left } else { right }
        }
    };
    Some(if i.has("xorsign") { chosen | xor_sign } else { chosen })
}

fn test(format: Format, i: &Instruction<'_>, bits: u64) -> Option<bool> {
    let magnitude = format.magnitude(bits);
    Some(match *i.modifiers.first()? {
        "finite" => magnitude < format.infinity(),
        "infinite" => magnitude == format.infinity(),
        "number" => magnitude <= format.infinity(),
        "notanumber" => magnitude > format.infinity(),
        // Zeros count as normal.
        "normal" => magnitude < format.infinity() && (magnitude == 0 || magnitude >= format.smallest_normal()),
        "subnormal" => magnitude > 0 && magnitude < format.smallest_normal(),
        _ => return None,
    })
}

fn comparison(thread: &mut Thread, i: &Instruction<'_>) -> Option<()> {
    let name = *i.modifiers.first()?;
    let source = *i.modifiers.last()?;
    let combine = i.modifiers.iter().find(|it| matches!(**it, "and" | "or" | "xor"));
    let [d, a, b, rest @ ..] = &i.operands[..] else { return None };
    let (a, b) = (thread.read(a)?, thread.read(b)?);
    if let Some((format, true)) = format(i) {
        let flush = |bits: u64| if i.has("ftz") { format.flush(bits) } else { bits };
        let half = |shift: u32| holds_floats(name, format, flush(a >> shift & 0xffff), flush(b >> shift & 0xffff));
        let (low, high) = (u64::from(half(0)?), u64::from(half(16)?));
        let one = ((1u64 << (format.exponent_bits - 1)) - 1) << format.fraction_bits;
        match (i.opcode, d.split_once('|')) {
            ("setp", Some((first, second))) => {
                thread.write(first, low);
                thread.write(second, high);
            }
            _ => thread.write(d, (low * one) | ((high * one) << 16)),
        }
        return Some(());
    }
    let holds = match Type::parse(source)? {
        Type::Float(format) => {
            let flush = |bits: u64| if i.has("ftz") { format.flush(bits) } else { bits };
            holds_floats(name, format, flush(a), flush(b))?
        }
        ty => holds_integers(name, ty, a, b)?,
    };
    let join = |holds: bool| -> Option<u64> {
        Some(match (combine, rest) {
            (None, []) => u64::from(holds),
            (Some(&"and"), [c]) => u64::from(holds) & thread.read(c)?,
            (Some(&"or"), [c]) => u64::from(holds) | thread.read(c)?,
            (Some(&"xor"), [c]) => u64::from(holds) ^ thread.read(c)?,
            _ => return None,
        })
    };
    let (yes, no) = (join(holds)?, join(!holds)?);
    if i.opcode == "setp" {
        let (first, second) = d.split_once('|').unwrap_or((d, "_"));
        thread.write(first, yes);
        thread.write(second, no);
        return Some(());
    }
    let to = i.types();
    let [to, ..] = to[..] else { return None };
    let one = match to {
        Type::Float(format) => ((1u64 << (format.exponent_bits - 1)) - 1) << format.fraction_bits,
        ty => u64::MAX >> (64 - ty.width()),
    };
    thread.write(d, if yes == 1 { one } else { 0 });
    Some(())
}

fn holds_integers(name: &str, ty: Type, a: u64, b: u64) -> Option<bool> {
    let width = ty.width();
    // Moving the sign to the other side makes one order of both.
    let flip = if let Type::Signed(_) = ty { 1u64 << (width - 1) } else { 0 };
    let key = |bits: u64| (bits & (u64::MAX >> (64 - width))) ^ flip;
    let order = key(a).cmp(&key(b));
    Some(match name {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" | "lo" => order.is_lt(),
        "le" | "ls" => order.is_le(),
        "gt" | "hi" => order.is_gt(),
        "ge" | "hs" => order.is_ge(),
        _ => return None,
    })
}

fn holds_floats(name: &str, format: Format, a: u64, b: u64) -> Option<bool> {
    let unordered = format.is_nan(a) || format.is_nan(b);
    let key = |bits: u64| {
        let magnitude = i128::from(format.magnitude(bits));
        if format.is_negative(bits) { -magnitude } else { magnitude }
    };
    let order = key(a).cmp(&key(b));
    let ordered = match name.trim_end_matches('u') {
        "num" => return Some(!unordered),
        "nan" => return Some(unordered),
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        "ge" => order.is_ge(),
        _ => return None,
    };
    let with_nan = name.ends_with('u');
    Some(if unordered { with_nan } else { ordered })
}

#[cfg(test)]
mod tests {
    use super::super::exact::{F32, F64};
    use super::*;
    use crate::random::Random;
    use crate::values::Kind;

    /// The CPU rounds to nearest as the definition says; NaNs have bits of their own.
    #[test]
    fn the_cpu_agrees_where_it_rounds_as_asked() {
        let mut random = Random::new(1);
        let rounded = |opcode, format, operands: &[u64]| result(opcode, format, Rounding::Nearest, operands);
        for _ in 0..2000 {
            let [a, b, c] = [0; 3].map(|_| Kind::F64.value(&mut random));
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            let results = [
                ("add", x + y, vec![a, b]),
                ("mul", x * y, vec![a, b]),
                ("fma", x.mul_add(y, z), vec![a, b, c]),
                ("div", x / y, vec![a, b]),
                ("sqrt", x.sqrt(), vec![a]),
            ];
            for (opcode, expected, operands) in results {
                let expected = if expected.is_nan() { F64.nan } else { expected.to_bits() };
                assert_eq!(rounded(opcode, F64, &operands), Some(expected), "{opcode} {operands:x?}");
            }
            let [a, b] = [0; 2].map(|_| Kind::F32.value(&mut random));
            let [x, y] = [a, b].map(|bits| f32::from_bits(u32::try_from(bits).unwrap_or_default()));
            let expected = x - y;
            let expected = if expected.is_nan() { F32.nan } else { u64::from(expected.to_bits()) };
            assert_eq!(rounded("sub", F32, &[a, b]), Some(expected), "sub {a:x} {b:x}");
        }
    }
}
