//! From values to places on the paper, and which values are named along the way.

/// A direction on the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    kind: Kind,
    /// The values at both ends.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Where they are.
    pub(crate) start: f64,
    pub(crate) end: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    Logarithmic,
}

/// Ticks that are easy to read lie at these times a power of ten.
const MANTISSAS: [f64; 3] = [1.0, 2.0, 5.0];
/// More ticks than that are hard to read.
const MOST_TICKS: usize = 12;

impl Scale {
    /// Reaches at least from the one to the other, between values that are easy to read.
    pub(crate) fn linear(from: f64, to: f64, start: f64, end: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        let step = linear_step(from, to);
        Self { kind: Kind::Linear, from: (from / step).floor() * step, to: (to / step).ceil() * step, start, end }
    }

    /// As [`Scale::linear`], with the same distance between each value and ten times that. Both are above 0.
    pub(crate) fn logarithmic(from: f64, to: f64, start: f64, end: f64) -> Self {
        let from = easy_values(from / 10.0, from).last().copied().unwrap_or(from);
        let to = easy_values(to, to * 10.0).first().copied().unwrap_or(to);
        let to = if to > from { to } else { from * 10.0 };
        Self { kind: Kind::Logarithmic, from, to, start, end }
    }

    /// Where a value is; one beyond the ends is at the end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.from, self.to);
        let part = match self.kind {
            Kind::Linear => (value - self.from) / (self.to - self.from),
            Kind::Logarithmic => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        self.start + part * (self.end - self.start)
    }

    /// The values to be named.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear => {
                let step = linear_step(self.from, self.to);
                let count = (0..=u32::try_from(MOST_TICKS).unwrap_or(0)).map(f64::from);
                count
                    .map(|number| self.from + number * step)
                    .take_while(|tick| *tick <= self.to + step * 1e-6)
                    .collect()
            }
            Kind::Logarithmic => {
                let all = easy_values(self.from, self.to);
                if all.len() <= MOST_TICKS {
                    return all;
                }
                let is_power = |value: &f64| (value.log10() - value.log10().round()).abs() < 1e-9;
                all.into_iter().filter(is_power).collect()
            }
        }
    }
}

/// An easy distance between ticks, of which there are a few.
fn linear_step(from: f64, to: f64) -> f64 {
    const FEW: f64 = 8.0;
    let rough = (to - from) / FEW;
    let power = 10f64.powf(rough.log10().floor());
    let step = MANTISSAS.iter().map(|mantissa| mantissa * power).find(|step| *step >= rough * (1.0 - 1e-9));
    step.unwrap_or(power * 10.0)
}

/// All easy values from the one to the other, both included.
fn easy_values(from: f64, to: f64) -> Vec<f64> {
    let mut values = Vec::new();
    let mut power = 10f64.powf(from.log10().floor());
    while power <= to {
        let easy = MANTISSAS.iter().map(|mantissa| mantissa * power);
        values.extend(easy.filter(|value| *value >= from * (1.0 - 1e-9) && *value <= to * (1.0 + 1e-9)));
        power *= 10.0;
    }
    values
}

/// A tick's value, with no more digits than it has.
pub(crate) fn name(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    if rounded == 0.0 { "0".to_string() } else { rounded.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(name).collect()
    }

    #[test]
    fn linear_ends_are_easy_to_read() {
        let scale = Scale::linear(0.0, 97.0, 0.0, 100.0);
        assert_eq!((scale.from, scale.to), (0.0, 100.0));
        assert_eq!(names(scale), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(names(Scale::linear(0.0, 0.7, 0.0, 1.0)).last().map(String::as_str), Some("0.7"));
        assert_eq!(Scale::linear(5.0, 5.0, 0.0, 1.0).to, 6.0, "one value is a range too");
    }

    #[test]
    fn logarithmic_ends_are_easy_to_read() {
        let scale = Scale::logarithmic(0.013, 3.2, 0.0, 100.0);
        assert!((scale.from - 0.01).abs() < 1e-12 && (scale.to - 5.0).abs() < 1e-12, "{scale:?}");
        assert_eq!(names(scale), ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5"]);
        let wide = Scale::logarithmic(0.001, 900_000.0, 0.0, 1.0);
        assert!(wide.ticks().len() <= MOST_TICKS, "{:?}", wide.ticks());
        assert_eq!(names(wide)[0], "0.001");
    }

    #[test]
    fn values_have_their_places() {
        let linear = Scale::linear(0.0, 100.0, 10.0, 110.0);
        assert_eq!((linear.place(0.0), linear.place(50.0), linear.place(1e9)), (10.0, 60.0, 110.0));
        let logarithmic = Scale::logarithmic(1.0, 100.0, 0.0, 100.0);
        assert!((logarithmic.place(10.0) - 50.0).abs() < 1e-9);
        let downwards = Scale::linear(0.0, 1.0, 100.0, 0.0);
        assert_eq!(downwards.place(1.0), 0.0);
    }
}
