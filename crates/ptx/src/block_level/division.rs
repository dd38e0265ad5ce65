//! Division by numbers that are known before a launch.

/// What divides numbers below 2³¹ by one number: `(n * factor) >> shift`, with 64 bits in between.
///
/// With l such that 2ˡ⁻¹ < d ≤ 2ˡ, the factor is 2³¹⁺ˡ / d, rounded up. What that adds is less than 1, so the product is less than n too
/// large, and n < 2³¹: divided by 2³¹⁺ˡ it is less than 2⁻ˡ ≤ 1/d too large, which takes no quotient past the next number. The factor is below
/// 2³², because 2³¹⁺ˡ / d is below 2³² by more than one for every d that has 32 bits.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divisor {
    /// What a number is multiplied by.
    pub factor: u32,
    /// By how many bits the product is shifted.
    pub shift: u32,
}

impl Divisor {
    /// For that number. Nothing is divided by 0, which is taken for 1.
    #[must_use]
    pub fn of(number: u32) -> Self {
        let number = number.max(1);
        let shift = 31 + (u32::BITS - (number - 1).leading_zeros());
        let factor = (1_u64 << shift).div_ceil(u64::from(number));
        Self { factor: u32::try_from(factor).unwrap_or(u32::MAX), shift }
    }
}

/// How a block's number, below 2³¹, is divided into its position.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// By the grid's width.
    pub width: Divisor,
    /// By its height.
    pub height: Divisor,
}

impl Division {
    /// For that grid.
    #[must_use]
    pub fn of(grid: [u32; 3]) -> Self {
        Self { width: Divisor::of(grid[0]), height: Divisor::of(grid[1]) }
    }

    /// As the device reads it.
    #[must_use]
    pub fn words(self) -> [u32; 4] {
        [self.width.factor, self.width.shift, self.height.factor, self.height.shift]
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    /// The first number that is not divided.
    const END: u32 = 1 << 31;

    fn divided(number: u32, by: u32) -> u64 {
        let Divisor { factor, shift } = Divisor::of(by);
        (u64::from(number) * u64::from(factor)) >> shift
    }

    #[test]
    fn divides_exactly() {
        let powers = (0..u32::BITS).map(|bits| 1_u32 << bits);
        let around = powers.flat_map(|it| [it.saturating_sub(1).max(1), it, it | 1, it | (it >> 1), it / 3 * 2 + 1]);
        for by in around.chain(1..1000).chain([65_535, u32::MAX]) {
            let steps = [1, 2, 3, by, by.saturating_mul(2), by.saturating_mul(1000), END / by * by, END];
            let numbers = steps.into_iter().flat_map(|it| [it.saturating_sub(1), it, it.saturating_add(1)]);
            for number in numbers.filter(|it| *it < END) {
                assert_eq!(divided(number, by), u64::from(number / by), "{number} / {by}");
            }
        }
    }

    #[test]
    fn divides_any_number() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u32::try_from(random >> 33).unwrap_or_default()
        };
        for _ in 0..100_000 {
            let (number, by) = (next(), (next() >> (next() % 31)).max(1));
            assert_eq!(divided(number, by), u64::from(number / by), "{number} / {by}");
        }
    }
}
