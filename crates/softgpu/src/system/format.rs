//! The formats of `printf` in kernels.
//!
//! A GPU's driver has the C library format what kernels print, and so does this one: conversion by conversion,
//! each with its one value.

use std::ffi::{CString, c_char, c_int};

/// Values that a call of `printf` may have; conversions beyond these stand as they are.
const MOST_VALUES: usize = 32;
/// Characters of one conversion: a width of a thousand million is no way to ask for memory.
const MOST_CHARACTERS: u32 = 1 << 16;

/// There is no memory at that address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadAddress(pub(crate) u64);

/// Reads the byte at an address as a kernel's thread sees it.
pub(crate) type Bytes<'a> = dyn FnMut(u64) -> Result<u8, BadAddress> + 'a;

/// A value of the caller.
#[derive(Debug)]
enum Value {
    Word(c_int),
    Long(i64),
    Double(f64),
    Text(CString),
}

/// One conversion, as far as it was read.
#[derive(Debug, Default)]
struct Conversion {
    flags: String,
    width: Option<Count>,
    precision: Option<Count>,
    /// `h`, `l` and the like.
    size: String,
    kind: u8,
}

#[derive(Debug, Clone, Copy)]
enum Count {
    Fixed(u32),
    /// `*`: the next value says.
    Value,
}

/// The values behind a format: each aligned to its size, one behind the other.
struct Values<'a, 'b> {
    at: u64,
    taken: usize,
    bytes: &'a mut Bytes<'b>,
}

impl Values<'_, '_> {
    fn next<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], BadAddress> {
        self.at = self.at.next_multiple_of(SIZE as u64);
        self.taken += 1;
        let mut value = [0; SIZE];
        for byte in &mut value {
            *byte = (self.bytes)(self.at)?;
            self.at = self.at.wrapping_add(1);
        }
        Ok(value)
    }

    fn word(&mut self) -> Result<c_int, BadAddress> {
        self.next().map(c_int::from_le_bytes)
    }

    fn long(&mut self) -> Result<i64, BadAddress> {
        self.next().map(i64::from_le_bytes)
    }
}

/// A text in the memory of the kernel, up to its terminator; as much of it as there may be.
pub(crate) fn text(bytes: &mut Bytes<'_>, address: u64, most: usize) -> Result<Vec<u8>, BadAddress> {
    let mut text = Vec::new();
    while text.len() < most {
        match bytes(address.wrapping_add(text.len() as u64))? {
            0 => break,
            byte => text.push(byte),
        }
    }
    Ok(text)
}

/// What `vprintf(format, values)` prints, and how many values it took.
pub(crate) fn format(
    format: u64,
    values: u64,
    most: usize,
    bytes: &mut Bytes<'_>,
) -> Result<(Vec<u8>, usize), BadAddress> {
    let format = text(bytes, format, most)?;
    let mut values = Values { at: values, taken: 0, bytes };
    let mut printed = Vec::new();
    let mut rest = format.as_slice();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        printed.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        if let Some(behind) = rest.strip_prefix(b"%%") {
            printed.push(b'%');
            rest = behind;
            continue;
        }
        let (conversion, length) = read(rest);
        match conversion {
            Some(conversion) if values.taken + conversion.values() <= MOST_VALUES => {
                printed.extend(conversion.run(&mut values, most)?);
            }
            _ => printed.extend_from_slice(&rest[..length]),
        }
        rest = &rest[length..];
    }
    printed.extend_from_slice(rest);
    printed.truncate(most);
    Ok((printed, values.taken))
}

/// The conversion at the start of the text, and how long it is; None where it is not one of CUDA's.
fn read(text: &[u8]) -> (Option<Conversion>, usize) {
    let mut at = 1;
    let mut conversion = Conversion::default();
    while let Some(flag) = text.get(at).filter(|byte| b"-+ #0".contains(byte)) {
        conversion.flags.push(char::from(*flag));
        at += 1;
    }
    conversion.width = count(text, &mut at);
    if text.get(at) == Some(&b'.') {
        at += 1;
        conversion.precision = count(text, &mut at).or(Some(Count::Fixed(0)));
    }
    while let Some(size) = text.get(at).filter(|byte| b"hlLjzt".contains(byte)) {
        conversion.size.push(char::from(*size));
        at += 1;
    }
    match text.get(at) {
        Some(kind) if b"cdiouxXpeEfFgGaAs".contains(kind) => {
            conversion.kind = *kind;
            (Some(conversion), at + 1)
        }
        _ => (None, at.min(text.len())),
    }
}

fn count(text: &[u8], at: &mut usize) -> Option<Count> {
    if text.get(*at) == Some(&b'*') {
        *at += 1;
        return Some(Count::Value);
    }
    let start = *at;
    let mut number = 0u32;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        number = number.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
        *at += 1;
    }
    (*at > start).then_some(Count::Fixed(number))
}

impl Conversion {
    /// How many values it takes.
    fn values(&self) -> usize {
        let counts = [self.width, self.precision].iter().filter(|count| matches!(count, Some(Count::Value))).count();
        counts + 1
    }

    fn run(mut self, values: &mut Values<'_, '_>, most: usize) -> Result<Vec<u8>, BadAddress> {
        let mut specification = String::from("%");
        let width = match self.width {
            Some(Count::Value) => {
                let width = values.word()?;
                if width < 0 {
                    self.flags.push('-');
                }
                Some(width.unsigned_abs())
            }
            Some(Count::Fixed(width)) => Some(width),
            None => None,
        };
        let precision = match self.precision {
            // A negative one is as none.
            Some(Count::Value) => u32::try_from(values.word()?).ok(),
            Some(Count::Fixed(precision)) => Some(precision),
            None => None,
        };
        specification.push_str(&self.flags);
        if let Some(width) = width {
            specification.push_str(&width.min(MOST_CHARACTERS).to_string());
        }
        if let Some(precision) = precision {
            specification.push_str(&format!(".{}", precision.min(MOST_CHARACTERS)));
        }
        let is_long = ["l", "ll", "j", "z", "t"].contains(&self.size.as_str());
        let value = match self.kind {
            b'c' => Value::Word(values.word()?),
            b's' => {
                let address = values.long()?.cast_unsigned();
                let limit = precision.map_or(most, |precision| precision as usize).min(most);
                let text = if address == 0 { b"(null)".to_vec() } else { text(values.bytes, address, limit)? };
                Value::Text(CString::new(text).unwrap_or_default())
            }
            b'p' => Value::Long(values.long()?),
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' if is_long => {
                specification.push_str("ll");
                Value::Long(values.long()?)
            }
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' => {
                specification.push_str(if self.size.starts_with('h') {
                    &self.size[..self.size.len().min(2)]
                } else {
                    ""
                });
                Value::Word(values.word()?)
            }
            _ => Value::Double(f64::from_bits(values.long()?.cast_unsigned())),
        };
        specification.push(char::from(self.kind));
        Ok(print(&CString::new(specification).unwrap_or_default(), &value))
    }
}

/// Has the C library print one value.
fn print(specification: &CString, value: &Value) -> Vec<u8> {
    let write = |place: *mut c_char, room: usize| {
        let format = specification.as_ptr();
        #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one of them is run")]
        // SAFETY: the format has one conversion, which is for a value of this type; the place has that much room.
        unsafe {
            match value {
                Value::Word(value) => libc::snprintf(place, room, format, *value),
                Value::Long(value) => libc::snprintf(place, room, format, *value),
                Value::Double(value) => libc::snprintf(place, room, format, *value),
                Value::Text(value) => libc::snprintf(place, room, format, value.as_ptr()),
            }
        }
    };
    let length = usize::try_from(write(core::ptr::null_mut(), 0)).unwrap_or(0);
    let mut printed = vec![0_u8; length + 1];
    write(printed.as_mut_ptr().cast(), printed.len());
    printed.truncate(length);
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats with values that lie one behind the other as the compiler puts them.
    fn printed(template: &str, values: &[Value]) -> (String, usize) {
        const VALUES: u64 = 0x1_0000;
        const TEXTS: u64 = 0x2_0000;
        let (mut area, mut texts) = (Vec::<u8>::new(), Vec::<u8>::new());
        for value in values {
            let mut put = |bytes: &[u8]| {
                area.resize(area.len().next_multiple_of(bytes.len()), 0);
                area.extend_from_slice(bytes);
            };
            match value {
                Value::Word(value) => put(&value.to_le_bytes()),
                Value::Long(value) => put(&value.to_le_bytes()),
                Value::Double(value) => put(&value.to_bits().to_le_bytes()),
                Value::Text(text) => {
                    put(&(TEXTS + texts.len() as u64).to_le_bytes());
                    texts.extend_from_slice(text.to_bytes_with_nul());
                }
            }
        }
        let mut memory = |address: u64| {
            let (part, offset) = match address {
                ..VALUES => (template.as_bytes(), address - 1),
                VALUES..TEXTS => (area.as_slice(), address - VALUES),
                _ => (texts.as_slice(), address - TEXTS),
            };
            let end = part.len() as u64 == offset && address < VALUES;
            let found = usize::try_from(offset).ok().and_then(|at| part.get(at)).copied();
            found.or(end.then_some(0)).ok_or(BadAddress(address))
        };
        let (text, count) = format(1, VALUES, 1 << 20, &mut memory).expect("all values are there");
        (String::from_utf8(text).expect("text"), count)
    }

    fn words(text: &str) -> Value {
        Value::Text(CString::new(text).expect("no NUL"))
    }

    #[test]
    fn values_are_taken_as_their_types_say() {
        let values = [Value::Word(-3), Value::Double(0.5), Value::Word(65), words("abc"), Value::Long(1 << 40)];
        assert_eq!(printed("%d %f %c %s %lld\n", &values), ("-3 0.500000 A abc 1099511627776\n".into(), 5));
        assert_eq!(printed("%u %x %X %o", &[-1, 255, 255, 8].map(Value::Word)).0, "4294967295 ff FF 10");
        assert_eq!(printed("%lu %zx %jd %tX", &[1, 16, -7, 255].map(Value::Long)).0, "1 10 -7 FF");
        assert_eq!(printed("%hd %hhu", &[0x1_0005, 0x1ff].map(Value::Word)).0, "5 255");
        assert_eq!(printed("%p", &[Value::Long(0x7f00)]).0, "0x7f00");
    }

    #[test]
    fn flags_width_and_precision_are_cs() {
        assert_eq!(printed("[%5d|%-5d|%05d|%+d|% d]", &[7; 5].map(Value::Word)).0, "[    7|7    |00007|+7| 7]");
        assert_eq!(printed("%#x %.3d %8.3d", &[26, 5, 5].map(Value::Word)).0, "0x1a 005      005");
        assert_eq!(
            printed("%.2e %g %G %a %10.4f", &[1234.5; 5].map(Value::Double)).0,
            "1.23e+03 1234.5 1234.5 0x1.34ap+10  1234.5000"
        );
        assert_eq!(printed("%.2s|%5s|%-5s|", &[words("abc"), words("ab"), words("ab")]).0, "ab|   ab|ab   |");
        let star =
            [Value::Word(6), Value::Word(42), Value::Word(-4), Value::Word(1), Value::Word(2), Value::Double(1.0)];
        assert_eq!(printed("%*d|%*d|%.*f", &star), ("    42|1   |1.00".into(), 6));
        assert_eq!(printed("%f %e %f", &[f64::NAN, f64::INFINITY, -0.0].map(Value::Double)).0, "nan inf -0.000000");
    }

    #[test]
    fn what_is_no_conversion_stands_as_it_is() {
        assert_eq!(printed("100%% %y %", &[]), ("100% %y %".into(), 0));
        assert_eq!(printed("%n%-", &[]).0, "%n%-");
        assert_eq!(printed("", &[]), (String::new(), 0));
    }

    #[test]
    fn values_beyond_the_last_stand_as_they_are() {
        let values: Vec<Value> = (0..40).map(Value::Word).collect();
        let (text, count) = printed(&"%d,".repeat(34), &values);
        assert_eq!(count, 32);
        assert!(text.ends_with("30,31,%d,%d,"), "{text}");
    }

    #[test]
    fn bad_addresses_and_hostile_widths_are_survived() {
        let nowhere = &mut |address| Err(BadAddress(address));
        assert_eq!(format(5, 0, 100, nowhere), Err(BadAddress(5)));
        assert_eq!(printed("%s", &[Value::Long(0)]).0, "(null)");
        assert_eq!(printed("%999999999999d", &[Value::Word(1)]).0.len(), MOST_CHARACTERS as usize);
    }
}
