//! Values of the configuration that have a range or a way of being written. Each refuses what is out of range while the
//! file is read, so that the message has the line.

use detshare_board::{HOLDS_NS, MOST_SHARE, MOST_SMS, MOST_SPLITS, MOST_WEIGHT, SplitLadder};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;
use std::time::Duration;

/// A time in nanoseconds, written like `20ms`; not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nanoseconds(pub u64);

/// How long a launch may be held, within what the board can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongestHold(pub u64);

/// Bytes, written like `40GiB` or as a whole number; not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A part of the whole, from 0 to 1; kept in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(pub u32);

/// A weight, from 1 to [`MOST_WEIGHT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight(pub u32);

/// Widths that rise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder(pub Vec<u32>);

/// The name of a policy that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyName(pub String);

fn nanoseconds(text: &str) -> Option<u64> {
    let duration: Duration = humantime::parse_duration(text).ok()?;
    u64::try_from(duration.as_nanos()).ok().filter(|ns| *ns > 0)
}

impl<'de> Deserialize<'de> for Nanoseconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let wanted = "a duration above 0 with its unit, such as \"5ms\"";
        nanoseconds(&text).map(Self).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &wanted))
    }
}

impl<'de> Deserialize<'de> for LongestHold {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let wanted = "a duration from \"1ns\" to \"10s\", such as \"20ms\"";
        let ns = nanoseconds(&text).filter(|ns| HOLDS_NS.contains(ns));
        ns.map(Self).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &wanted))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Bytes;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a size above 0, such as \"40GiB\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Bytes, E> {
                let size = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
                size.map(Bytes).ok_or_else(|| E::invalid_value(Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                detshare_api::parse_size(text).map(Bytes).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        from.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let part = f64::deserialize(from)?;
        let wanted = "a part of the whole, from 0 to 1";
        Self::of(part).ok_or_else(|| D::Error::invalid_value(Unexpected::Float(part), &wanted))
    }
}

impl Share {
    /// Of a part of the whole, from 0 to 1.
    pub(crate) fn of(part: f64) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
        (0.0..=1.0).contains(&part).then(|| Self((part * f64::from(MOST_SHARE)).round() as u32))
    }

    /// In thousandths.
    pub(crate) fn thousandths(self) -> u16 {
        u16::try_from(self.0).unwrap_or(u16::MAX)
    }

    /// As a part of the whole.
    pub(crate) fn part(self) -> f64 {
        f64::from(self.0) / f64::from(MOST_SHARE)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        let weight = u32::try_from(number).ok().filter(|weight| (1..=MOST_WEIGHT).contains(weight));
        let wanted = format!("a whole number from 1 to {MOST_WEIGHT}");
        weight.map(Self).ok_or_else(|| D::Error::invalid_value(Unexpected::Signed(number), &wanted.as_str()))
    }
}

impl<'de> Deserialize<'de> for Ladder {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let widths = Vec::<u32>::deserialize(from)?;
        if SplitLadder::new(&widths).is_none() {
            return Err(D::Error::custom(format!(
                "a ladder has at most {MOST_SPLITS} widths that rise, from 1 to {MOST_SMS}, not {widths:?}"
            )));
        }
        Ok(Self(widths))
    }
}

/// All policies' names, for messages.
#[must_use]
pub fn known_policies() -> String {
    detshare_policy::POLICIES.iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ")
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if detshare_policy::number(&name).is_none() {
            return Err(D::Error::custom(format!("there is no policy {name:?}; there are: {}", known_policies())));
        }
        Ok(Self(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(nanoseconds("20ms"), Some(20_000_000));
        assert_eq!(nanoseconds("1s 5us"), Some(1_000_005_000));
        for text in ["", "20", "0ms", "-1s", "900000000000000000y"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
