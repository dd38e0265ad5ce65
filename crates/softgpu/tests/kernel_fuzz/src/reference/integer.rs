//! Integers: everything in numbers that are wide enough, or bit by bit.

use super::{Instruction, Thread, Type};

/// A number of that type in a register.
fn value(ty: Type, bits: u64) -> i128 {
    let kept = bits & mask(ty.width());
    match ty {
        Type::Signed(width) if kept >> (width - 1) & 1 == 1 => i128::from(kept) - (1i128 << width),
        _ => i128::from(kept),
    }
}

fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

fn bits(value: i128, width: u32) -> u64 {
    u64::try_from(value & i128::from(mask(width))).unwrap_or_default()
}

fn clamp(value: i128, ty: Type) -> i128 {
    let (least, most) = match ty {
        Type::Signed(width) => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
        _ => (0, (1i128 << ty.width()) - 1),
    };
    value.clamp(least, most)
}

/// One bit of a word; none beyond its end.
fn bit(word: u64, at: u64, width: u32) -> u64 {
    if at < u64::from(width) { word >> at & 1 } else { 0 }
}

/// A word from what each of its bits is.
fn from_bits(width: u32, of: impl Fn(u64) -> u64) -> u64 {
    (0..u64::from(width)).fold(0, |word, at| word | (of(at) & 1) << at)
}

pub(super) fn step(thread: &mut Thread, i: &Instruction<'_>) -> Option<()> {
    if let ["pred"] = i.modifiers[..] {
        return predicate(thread, i);
    }
    if i.opcode == "mov" {
        return mov(thread, i);
    }
    if let Some(ty) = i.modifiers.last().and_then(|name| Type::parse(name.strip_suffix("x2")?)) {
        return pairs(thread, i, ty);
    }
    let types = i.types();
    let last = *types.last()?;
    if i.opcode == "selp" {
        let [d, a, b, p] = i.operands[..] else { return None };
        let chosen = if thread.read(p)? == 1 { thread.read(a)? } else { thread.read(b)? };
        thread.write(d, chosen & mask(last.width()));
        return Some(());
    }
    if i.opcode == "slct" {
        return slct(thread, i, &types);
    }
    if let Type::Float(_) = last {
        return None;
    }
    if matches!(i.opcode, "cvt" | "dp4a" | "dp2a" | "prmt" | "lop3" | "fns") || i.opcode.starts_with('v') {
        return if types.len() == 1 || i.opcode.starts_with("dp") { words(thread, i, last) } else { None };
    }
    if matches!(i.opcode, "setp" | "set") {
        return None;
    }
    if i.has("cc") || matches!(i.opcode, "addc" | "subc" | "madc") {
        return carried(thread, i, last);
    }
    let width = last.width();
    let [d, rest @ ..] = &i.operands[..] else { return None };
    let read: Option<Vec<u64>> = rest.iter().map(|operand| thread.read(operand)).collect();
    let read = read?;
    let result = if matches!(i.opcode, "shl" | "shr" | "bfe" | "bfi" | "bmsk" | "szext" | "shf") {
        shifted(i, last, &read)?
    } else {
        arithmetic(i, last, &read)?
    };
    thread.write(d, result & if i.has("wide") { mask(width * 2) } else { mask(64) });
    Some(())
}

fn predicate(thread: &mut Thread, i: &Instruction<'_>) -> Option<()> {
    let [d, rest @ ..] = &i.operands[..] else { return None };
    let read: Option<Vec<u64>> = rest.iter().map(|operand| thread.read(operand)).collect();
    let result = match (i.opcode, &read?[..]) {
        ("and", [a, b]) => a & b,
        ("or", [a, b]) => a | b,
        ("xor", [a, b]) => a ^ b,
        ("not", [a]) => a ^ 1,
        ("mov", [a]) => *a,
        _ => return None,
    };
    thread.write(d, result);
    Some(())
}

/// Packing and unpacking; parts have the width of their registers.
fn mov(thread: &mut Thread, i: &Instruction<'_>) -> Option<()> {
    let width = i.types().first()?.width();
    let joined = i.operands.join(",");
    let parts = |list: &str| -> Vec<String> { list.split(',').map(|part| part.trim().to_string()).collect() };
    if let Some(list) = joined.strip_prefix('{') {
        let (list, source) = list.split_once("},")?;
        let (list, source) = (parts(list), thread.read(source.trim())?);
        let each = width / u32::try_from(list.len()).ok()?;
        for (at, name) in (0..).zip(list) {
            thread.write(&name, source >> (at * each) & mask(each));
        }
        return Some(());
    }
    let (d, source) = joined.split_once(',')?;
    let value = match source.trim().strip_prefix('{') {
        Some(list) => {
            let list = parts(list.strip_suffix('}')?);
            let each = width / u32::try_from(list.len()).ok()?;
            let mut value = 0;
            for (at, name) in (0..).zip(list) {
                value |= (thread.read(&name)? & mask(each)) << (at * each);
            }
            value
        }
        None => thread.read(source.trim())?,
    };
    thread.write(d, value & mask(width));
    Some(())
}

/// Two 16-bit numbers side by side.
fn pairs(thread: &mut Thread, i: &Instruction<'_>, ty: Type) -> Option<()> {
    let ([d, a, b], Type::Signed(_) | Type::Unsigned(_)) = (&i.operands[..], ty) else { return None };
    let (a, b) = (thread.read(a)?, thread.read(b)?);
    let half = |shift: u32| arithmetic(i, ty, &[a >> shift, b >> shift]);
    let result = half(0)? | half(16)? << 16;
    thread.write(d, result);
    Some(())
}

fn slct(thread: &mut Thread, i: &Instruction<'_>, types: &[Type]) -> Option<()> {
    let ([d, a, b, c], [ty, by]) = (&i.operands[..], types) else { return None };
    let c = thread.read(c)?;
    let at_least_zero = match by {
        // Both zeros are; a NaN is not.
        Type::Float(format) => {
            let c = if i.has("ftz") { format.flush(c) } else { c };
            !format.is_nan(c) && (!format.is_negative(c) || format.magnitude(c) == 0)
        }
        by => value(*by, c) >= 0,
    };
    let chosen = if at_least_zero { thread.read(a)? } else { thread.read(b)? };
    thread.write(d, chosen & mask(ty.width()));
    Some(())
}

fn arithmetic(i: &Instruction<'_>, ty: Type, read: &[u64]) -> Option<u64> {
    let width = ty.width();
    let v: Vec<i128> = read.iter().map(|bits| value(ty, *bits)).collect();
    // Products of 64-bit numbers need all of 128 bits: only the parts that are asked for are made of them.
    let product =
        |a: i128, b: i128| if i.has("hi") { a.checked_mul(b).map(|it| it >> width) } else { Some(a.wrapping_mul(b)) };
    let wide_c =
        || value(if let Type::Signed(_) = ty { Type::Signed(width * 2) } else { Type::Unsigned(width * 2) }, read[2]);
    let low24 = |bits: u64| value(if let Type::Signed(_) = ty { Type::Signed(24) } else { Type::Unsigned(24) }, bits);
    let product24 = || (low24(read[0]) * low24(read[1])) >> if i.has("hi") { 16 } else { 0 };
    let result = match (i.opcode, &v[..]) {
        ("add", [a, b]) => a + b,
        ("sub", [a, b]) => a - b,
        ("mul", [a, b]) if i.has("wide") => return Some(bits(a * b, width * 2)),
        ("mul", [a, b]) if width < 64 => product(*a, *b)?,
        ("mul", [a, b]) => return Some(long_product(*a, *b, i.has("hi"))),
        ("mad", [a, b, _]) if i.has("wide") => return Some(bits(a * b + wide_c(), width * 2)),
        ("mad", [a, b, c]) if width < 64 => product(*a, *b)? + c,
        ("mad", [a, b, c]) => return Some(bits(i128::from(long_product(*a, *b, i.has("hi"))) + c, 64)),
        ("mul24", [_, _]) => product24(),
        ("mad24", [_, _, c]) => {
            let part = bits(product24(), 32);
            value(ty, part) + c
        }
        ("sad", [a, b, c]) => (a - b).abs() + c,
        ("min", [a, b]) => *a.min(b),
        ("max", [a, b]) => *a.max(b),
        ("abs", [a]) => a.abs(),
        ("neg", [a]) => -a,
        ("and", [a, b]) => a & b,
        ("or", [a, b]) => a | b,
        ("xor", [a, b]) => a ^ b,
        ("not", [a]) => !a,
        ("cnot", [a]) => i128::from(*a == 0),
        ("div", [a, b]) if *b != 0 => a / b,
        ("rem", [a, b]) if *b != 0 => a % b,
        // What there is no definition for; an H200 gives these.
        ("div" | "rem", [_, _]) => -1,
        ("popc", [_]) => i128::from((0..64).filter(|at| bit(read[0], *at, width) == 1).count() as u64),
        ("clz", [_]) => i128::from(top_bit(read[0], width).map_or(width, |top| width - 1 - top)),
        ("brev", [_]) => i128::from(from_bits(width, |at| bit(read[0], u64::from(width) - 1 - at, width))),
        ("bfind", [a]) => {
            let looked_at = if *a < 0 { !read[0] } else { read[0] };
            match top_bit(looked_at & mask(width), width) {
                Some(top) if i.has("shiftamt") => i128::from(width - 1 - top),
                Some(top) => i128::from(top),
                None => return Some(mask(32)),
            }
        }
        _ => return None,
    };
    let result = if i.has("sat") { clamp(result, ty) } else { result };
    let result = if i.has("relu") { result.max(0) } else { result };
    let kept = if matches!(i.opcode, "popc" | "clz" | "bfind") { 32 } else { width };
    Some(bits(result, kept))
}

/// Products of 64-bit numbers, by halves.
fn long_product(a: i128, b: i128, high: bool) -> u64 {
    let negative = (a < 0) != (b < 0);
    let (a, b) = (a.unsigned_abs(), b.unsigned_abs());
    let magnitude = a * b;
    let whole = if negative { magnitude.wrapping_neg() } else { magnitude };
    u64::try_from(if high { whole >> 64 } else { whole & u128::from(u64::MAX) }).unwrap_or_default()
}

fn top_bit(word: u64, width: u32) -> Option<u32> {
    (0..width).rev().find(|at| word >> at & 1 == 1)
}

fn shifted(i: &Instruction<'_>, ty: Type, read: &[u64]) -> Option<u64> {
    let width = ty.width();
    let signed = matches!(ty, Type::Signed(_));
    let sign = bit(read[0], u64::from(width) - 1, width);
    let amount = |word: u64| word & 0xffff_ffff;
    // The definition takes eight bits of them; an H200 all, where it has to take 64-bit operands apart.
    let byte = |word: u64| if width == 64 { amount(word) } else { word & 0xff };
    Some(match (i.opcode, read) {
        ("shl", [a, n]) => from_bits(width, |at| at.checked_sub(amount(*n)).map_or(0, |at| bit(*a, at, width))),
        ("shr", [a, n]) => from_bits(width, |at| {
            let from = at + amount(*n);
            if from < u64::from(width) { bit(*a, from, width) } else { sign & u64::from(signed) }
        }),
        ("bfe", [a, position, length]) => {
            let (position, length) = (byte(*position), byte(*length));
            let last = (position + length).saturating_sub(1).min(u64::from(width) - 1);
            let fill = if signed && length > 0 { bit(*a, last, width) } else { 0 };
            from_bits(width, |at| {
                if at < length && position + at < u64::from(width) { bit(*a, position + at, width) } else { fill }
            })
        }
        ("bfi", [a, b, position, length]) => {
            let (position, length) = (byte(*position), byte(*length));
            from_bits(width, |at| match at.checked_sub(position) {
                Some(offset) if offset < length => bit(*a, offset, width),
                _ => bit(*b, at, width),
            })
        }
        ("bmsk", [first, count]) => {
            let wrap = |word: u64| if i.has("wrap") { word & 31 } else { amount(word) };
            let (first, count) = (wrap(*first), wrap(*count));
            from_bits(32, |at| u64::from(at >= first && at < first + count))
        }
        ("szext", [a, length]) => {
            let length = if i.has("wrap") { length & 31 } else { amount(*length) };
            let fill = if signed && length > 0 { bit(*a, (length - 1).min(31), 32) } else { 0 };
            from_bits(32, |at| if at < length { bit(*a, at, 32) } else { fill })
        }
        ("shf", [low, high, n]) => {
            let n = if i.has("wrap") { n & 31 } else { amount(*n).min(32) };
            let both = |at: u64| if at < 32 { bit(*low, at, 32) } else { bit(*high, at - 32, 32) };
            let from = if i.has("l") { 32 - n } else { n };
            from_bits(32, |at| both(at + from))
        }
        _ => return None,
    })
}

/// Instructions on words as tables and bytes.
fn words(thread: &mut Thread, i: &Instruction<'_>, ty: Type) -> Option<()> {
    let [d, rest @ ..] = &i.operands[..] else { return None };
    let read: Option<Vec<u64>> = rest.iter().map(|operand| thread.read(operand)).collect();
    let read = read?;
    let result = match (i.opcode, &read[..]) {
        ("lop3", [a, b, c, table, q]) => {
            let (word, predicate) = d.split_once('|')?;
            let result = from_table(*table, [*a, *b, *c]);
            let any = u64::from(result != 0);
            thread.write(word, result);
            thread.write(predicate, if i.has("or") { any | q } else { any & q });
            return Some(());
        }
        ("fns", [a, base, offset]) => {
            let (base, offset) = (base & mask(32), value(Type::Signed(32), *offset));
            let set = |at: &u64| bit(*a, *at, 32) == 1;
            let found = match offset {
                0 => Some(base).filter(set),
                1.. => (base..32).filter(set).nth(usize::try_from(offset - 1).ok()?),
                _ => (0..=base).rev().filter(set).nth(usize::try_from(-offset - 1).ok()?),
            };
            found.unwrap_or(mask(32))
        }
        ("lop3", [a, b, c, table]) if i.modifiers == ["b32"] => from_table(*table, [*a, *b, *c]),
        ("prmt", [a, b, c]) => {
            let both = (a & mask(32)) | (b & mask(32)) << 32;
            let byte = |at: u64| both >> (8 * (at & 7)) & 0xff;
            let n = c & 3;
            let pick = |at: u64| -> Option<u64> {
                Some(match i.modifiers.get(1) {
                    None => {
                        let selector = c >> (4 * at) & 15;
                        let chosen = byte(selector);
                        if selector & 8 == 0 { chosen } else { (chosen >> 7) * 0xff }
                    }
                    Some(&"f4e") => byte(n + at),
                    Some(&"b4e") => byte((8 + n - at) & 7),
                    Some(&"rc8") => byte(n),
                    Some(&"ecl") => byte(n.max(at)),
                    Some(&"ecr") => byte(n.min(at)),
                    Some(&"rc16") => byte((n & 1) * 2 + (at & 1)),
                    _ => return None,
                })
            };
            (0..4).try_fold(0, |word, at| Some(word | pick(at)? << (8 * at)))?
        }
        ("dp4a", [a, b, c]) => {
            let [first, second] = i.types()[..] else { return None };
            let part = |ty: Type, word: u64, at: u32| value(narrow(ty, 8), word >> (8 * at));
            let sum: i128 = (0..4).map(|at| part(first, *a, at) * part(second, *b, at)).sum();
            bits(sum + value(ty, *c), 32)
        }
        ("dp2a", [a, b, c]) => {
            let [first, second] = i.types()[..] else { return None };
            let half = if i.has("hi") { 16 } else { 0 };
            let product =
                |at: u32| value(narrow(first, 16), a >> (16 * at)) * value(narrow(second, 8), b >> (half + 8 * at));
            bits(product(0) + product(1) + value(ty, *c), 32)
        }
        _ => return None,
    };
    thread.write(d, result);
    Some(())
}

fn from_table(table: u64, [a, b, c]: [u64; 3]) -> u64 {
    from_bits(32, |at| {
        let index = bit(a, at, 32) << 2 | bit(b, at, 32) << 1 | bit(c, at, 32);
        table >> index & 1
    })
}

fn narrow(ty: Type, width: u32) -> Type {
    if let Type::Signed(_) = ty { Type::Signed(width) } else { Type::Unsigned(width) }
}

/// With carry in, carry out, or both. All in numbers without a sign.
fn carried(thread: &mut Thread, i: &Instruction<'_>, ty: Type) -> Option<()> {
    let [d, rest @ ..] = &i.operands[..] else { return None };
    let width = ty.width();
    let read: Option<Vec<u64>> = rest.iter().map(|operand| thread.read(operand)).collect();
    let read: Vec<u64> = read?.into_iter().map(|word| word & mask(width)).collect();
    let takes = i.opcode.ends_with('c') && i.opcode != "sad";
    let carry = i128::from(takes && thread.carry);
    let wide = |word: u64| i128::from(word);
    let (result, out) = match (i.opcode, &read[..]) {
        ("add" | "addc", [a, b]) => {
            let sum = wide(*a) + wide(*b) + carry;
            (bits(sum, width), sum >> width != 0)
        }
        ("sub" | "subc", [a, b]) => {
            let difference = wide(*a) - wide(*b) - carry;
            (bits(difference, width), difference < 0)
        }
        ("mad" | "madc", [a, b, c]) => {
            let part = if width == 64 {
                long_product(value(ty, *a), value(ty, *b), i.has("hi"))
            } else {
                let product = value(ty, *a) * value(ty, *b);
                bits(if i.has("hi") { product >> width } else { product }, width)
            };
            let sum = wide(part) + wide(*c) + carry;
            (bits(sum, width), sum >> width != 0)
        }
        _ => return None,
    };
    if i.has("cc") {
        thread.carry = out;
    }
    thread.write(d, result);
    Some(())
}
