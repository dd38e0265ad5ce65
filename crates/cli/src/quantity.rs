//! Sizes, durations and rates as people write and read them.

use std::time::Duration;

/// What a size looks like.
const SIZE: &str = "a size is a whole number above 0 of bytes, KiB, MiB, GiB or TiB, such as 40GiB";
/// What a duration looks like.
const DURATION: &str = "a duration is a number with a unit, such as 5ms, 1.5s or 800us";

/// Nothing that one waits for takes longer; and what is shorter than the clock's grain is a mistake.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST: Duration = Duration::from_micros(1);

/// Reads a number of bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    detshare_api::parse_size(text).ok_or_else(|| SIZE.to_string())
}

/// Reads a time to keep to.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim_start() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(DURATION.to_string()),
    };
    let number: f64 = number.parse().map_err(|_| DURATION.to_string())?;
    let duration = Duration::try_from_secs_f64(number * seconds).map_err(|_| DURATION.to_string())?;
    if duration < SHORTEST || duration > LONGEST {
        return Err(format!("it must be between 1us and 24 hours: {DURATION}"));
    }
    Ok(duration)
}

/// `40.0 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    match in_binary_unit(bytes) {
        (_, None) => format!("{bytes} B"),
        (value, Some(unit)) => format!("{value:.1} {unit}iB"),
    }
}

/// `40.0G`, where every column counts.
pub(crate) fn short_size(bytes: u64) -> String {
    match in_binary_unit(bytes) {
        (_, None) => bytes.to_string(),
        (value, Some(unit)) => format!("{}{unit}", three_digits(value)),
    }
}

fn in_binary_unit(bytes: u64) -> (f64, Option<char>) {
    const STEP: f64 = 1024.0;
    /// What would be printed as 1024.0 belongs to the next unit.
    const LARGEST: f64 = STEP - 0.05;
    let mut value = approximate(bytes);
    if bytes < 1024 {
        return (value, None);
    }
    value /= STEP;
    let mut unit = 'K';
    for next in ['M', 'G', 'T', 'P', 'E'] {
        if value < LARGEST {
            break;
        }
        value /= STEP;
        unit = next;
    }
    (value, Some(unit))
}

/// `1.23 ms`, always three digits that count.
pub(crate) fn nanoseconds(time: u64) -> String {
    const STEP: f64 = 1000.0;
    if time < 1000 {
        return format!("{time} ns");
    }
    let mut value = approximate(time) / STEP;
    for unit in ["us", "ms"] {
        if value < STEP - 0.5 {
            return format!("{} {unit}", three_digits(value));
        }
        value /= STEP;
    }
    format!("{} s", three_digits(value))
}

/// `3h 05m`, for something that has been there for a while.
pub(crate) fn age(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    if days > 0 {
        format!("{days}d {:02}h", hours % 24)
    } else if hours > 0 {
        format!("{hours}h {:02}m", minutes % 60)
    } else if minutes > 0 {
        format!("{minutes}m {:02}s", seconds % 60)
    } else {
        format!("{seconds}s")
    }
}

/// `12.3k`, for rates.
pub(crate) fn number(value: f64) -> String {
    const STEP: f64 = 1000.0;
    if value < STEP - 0.5 {
        return if value == 0.0 { "0".to_string() } else { three_digits(value) };
    }
    let mut value = value / STEP;
    for unit in ["k", "M", "G"] {
        if value < STEP - 0.5 {
            return format!("{}{unit}", three_digits(value));
        }
        value /= STEP;
    }
    format!("{value:.0}T")
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// For reading: more than 53 bits are not printed anyway.
#[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
pub(crate) fn approximate(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("40GiB", 40 << 30), ("1", 1), ("512 mb", 512 << 20), ("2T", 2 << 40)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "0", "-1", "40QiB", "1.5GiB", "99999999999999999999", "20000000TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, nanoseconds) in [
            ("5ms", 5_000_000),
            ("1s", 1_000_000_000),
            ("1.5 s", 1_500_000_000),
            ("800us", 800_000),
            ("24h", 86_400_000_000_000),
        ] {
            assert_eq!(parse_duration(text).map(|time| time.as_nanos()), Ok(nanoseconds), "{text}");
        }
        for text in [
            "",
            "5",
            "ms",
            "-5ms",
            "0s",
            "1ns",
            "5 parsecs",
            "1e99s",
            "100000min",
            "1000000h",
            "banana",
            "NaNs",
            "1.2.3s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (40 << 30, "40.0 GiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        for (bytes, text) in [(0, "0"), (1023, "1023"), (40 << 30, "40.0G"), (512 << 20, "512M"), (1023 << 20, "1023M")]
        {
            assert_eq!(short_size(bytes), text);
        }
    }

    #[test]
    fn times_are_printed() {
        for (time, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_230_000, "1.23 ms"),
            (12_345, "12.3 us"),
            (999_999, "1.00 ms"),
            (123_400_000, "123 ms"),
            (75_000_000_000, "75.0 s"),
        ] {
            assert_eq!(nanoseconds(time), text);
        }
        for (seconds, text) in
            [(7.9, "7s"), (61.0, "1m 01s"), (11_100.0, "3h 05m"), (200_000.0, "2d 07h"), (-1.0, "0s")]
        {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn numbers_are_printed() {
        for (value, text) in
            [(0.0, "0"), (0.5, "0.50"), (123.4, "123"), (999.7, "1.00k"), (12_345.0, "12.3k"), (4.2e6, "4.20M")]
        {
            assert_eq!(number(value), text);
        }
    }
}
