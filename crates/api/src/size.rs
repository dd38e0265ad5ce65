//! Sizes as people write them.

/// A number of bytes above 0, such as `40GiB` or `512 mb`. The units are powers of two however they are written: so the
/// shim reads them, and so GPUs are sold.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit.trim_start() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("40GiB", 40 << 30), ("1", 1), ("512 mb", 512 << 20), ("2T", 2 << 40)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "GiB", "0", "-1", "40QiB", "1.5GiB", "99999999999999999999", "20000000TiB", "µ"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
