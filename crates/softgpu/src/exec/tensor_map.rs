//! What `cuTensorMapEncodeTiled` makes of its arguments: 128 bytes that programs pass on unseen, in our own layout.

/// In bytes.
pub(crate) const SIZE: usize = 128;
pub(crate) const MOST_DIMENSIONS: usize = 5;

/// Tells a map from other bytes.
const MAGIC: [u8; 4] = *b"DSTM";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swizzle {
    None,
    Bytes32,
    Bytes64,
    Bytes128,
}

/// A tensor in global memory and the box of it that a copy moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorMap {
    pub(crate) address: u64,
    /// The type of its elements, as the driver numbers them.
    pub(crate) element: u8,
    /// What is loaded is rounded to `tf32`: since the map had that type once, whatever a kernel has made of it, as on an H200.
    pub(crate) rounds: bool,
    pub(crate) dimensions: u8,
    pub(crate) swizzle: Swizzle,
    /// Elements outside of the tensor are NaN rather than zero.
    pub(crate) fill_nan: bool,
    /// Elements in each dimension.
    pub(crate) sizes: [u64; MOST_DIMENSIONS],
    /// Bytes from one element to the next, in all dimensions but the first.
    pub(crate) strides: [u64; MOST_DIMENSIONS - 1],
    /// Elements in the box.
    pub(crate) extent: [u32; MOST_DIMENSIONS],
    /// Only every so manieth element of the box is taken.
    pub(crate) steps: [u8; MOST_DIMENSIONS],
}

/// What `tensormap.replace` can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Address,
    Dimensions,
    Extent(usize),
    Size(usize),
    Stride(usize),
    Step(usize),
    Element,
    Swizzle,
    Fill,
    Interleave,
}

impl Swizzle {
    /// As the driver and PTX number them.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Bytes32,
            2 => Self::Bytes64,
            3 => Self::Bytes128,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Bytes32 => 1,
            Self::Bytes64 => 2,
            Self::Bytes128 => 3,
        }
    }

    /// How many bytes of the innermost dimension it can take.
    pub(crate) fn span(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// Where a byte goes in shared memory that would lie there: the 16-byte units of a row change places by the row.
    pub(crate) fn apply(self, address: u64) -> u64 {
        let mask = match self {
            Self::None => 0,
            Self::Bytes32 => 1,
            Self::Bytes64 => 3,
            Self::Bytes128 => 7,
        };
        address ^ (address >> 7 & mask) << 4
    }
}

/// The size of an element in bytes, by the driver's number of its type; None for types that cannot be copied here.
pub(crate) fn element_size(element: u8) -> Option<u32> {
    Some(match element {
        0 => 1,
        1 | 6 | 9 => 2,
        2 | 3 | 7 | 10..=12 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// Whether elements of that type are rounded to `tf32` when they are loaded.
pub(crate) fn is_rounded(element: u8) -> bool {
    matches!(element, 11 | 12)
}

/// Whether they are floats that can be.
pub(crate) fn can_be_rounded(element: u8) -> bool {
    matches!(element, 7 | 10..=12)
}

impl TensorMap {
    pub(crate) fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC);
        let flags = u8::from(self.fill_nan) | u8::from(self.rounds) << 1;
        put(&[self.element, self.dimensions, self.swizzle.number(), flags]);
        put(&self.address.to_le_bytes());
        self.sizes.iter().for_each(|size| put(&size.to_le_bytes()));
        self.strides.iter().for_each(|stride| put(&stride.to_le_bytes()));
        // At most 256 elements, so two bytes each.
        self.extent.iter().for_each(|extent| put(&extent.to_le_bytes()[..2]));
        put(&self.steps);
        bytes
    }

    /// None for bytes that are no map.
    pub(crate) fn from_bytes(bytes: &[u8; SIZE]) -> Option<Self> {
        let mut at = 0;
        let mut take = |count: usize| {
            at += count;
            &bytes[at - count..at]
        };
        let wide = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        if take(4) != MAGIC {
            return None;
        }
        let head = take(4);
        let (element, dimensions, fill_nan, rounds) = (head[0], head[1], head[3] & 1 != 0, head[3] & 2 != 0);
        let swizzle = Swizzle::from_number(head[2].into())?;
        element_size(element)?;
        if !(1..=MOST_DIMENSIONS).contains(&usize::from(dimensions)) {
            return None;
        }
        let address = wide(take(8));
        let sizes = [(); MOST_DIMENSIONS].map(|()| wide(take(8)));
        let strides = [(); MOST_DIMENSIONS - 1].map(|()| wide(take(8)));
        let extent = [(); MOST_DIMENSIONS].map(|()| u32::try_from(wide(take(2))).unwrap_or_default());
        let mut steps = [1; MOST_DIMENSIONS];
        steps.copy_from_slice(take(MOST_DIMENSIONS));
        Some(Self { address, element, rounds, dimensions, swizzle, fill_nan, sizes, strides, extent, steps })
    }

    /// Changes one thing; false where there is no such value.
    pub(crate) fn replace(&mut self, field: Field, value: u64) -> bool {
        let narrow = u32::try_from(value).unwrap_or(u32::MAX);
        let small = u8::try_from(value).unwrap_or(u8::MAX);
        match field {
            Field::Address => self.address = value,
            // One less than there are.
            Field::Dimensions if small < 5 => self.dimensions = small + 1,
            Field::Extent(at) if (1..=256).contains(&narrow) => self.extent[at] = narrow,
            Field::Size(at) => self.sizes[at] = if value == 0 { 1 << 32 } else { value },
            Field::Stride(at) => self.strides[at] = value,
            Field::Step(at) if (1..=8).contains(&small) => self.steps[at] = small,
            // PTX numbers three of the types otherwise than the driver.
            Field::Element => {
                let element = match [8, 9, 10].iter().position(|number| *number == small) {
                    Some(at) => [10, 8, 9][at],
                    None if element_size(small).is_some() => small,
                    None => return false,
                };
                self.element = element;
                self.rounds |= is_rounded(element);
            }
            Field::Swizzle => match Swizzle::from_number(narrow) {
                Some(swizzle) => self.swizzle = swizzle,
                None => return false,
            },
            Field::Fill => self.fill_nan = value & 1 != 0,
            // There are no other maps here than those without.
            Field::Interleave if value == 0 => {}
            _ => return false,
        }
        true
    }

    /// Elements of the box that are taken in each dimension.
    pub(crate) fn taken(&self) -> [u32; MOST_DIMENSIONS] {
        let mut taken = [1; MOST_DIMENSIONS];
        for (at, taken) in taken.iter_mut().enumerate().take(self.dimensions.into()) {
            // The first dimension is taken without gaps.
            let step = if at == 0 { 1 } else { u32::from(self.steps[at].max(1)) };
            *taken = self.extent[at].div_ceil(step);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap {
            address: 0x7000_1234_5670,
            element: 7,
            rounds: true,
            dimensions: 3,
            swizzle: Swizzle::Bytes64,
            fill_nan: true,
            sizes: [1 << 32, 7, 3, 1, 1],
            strides: [1 << 39, 32, 0, 0],
            extent: [256, 5, 2, 1, 1],
            steps: [1, 2, 1, 1, 1],
        }
    }

    #[test]
    fn bytes_lead_back_to_the_map() {
        assert_eq!(TensorMap::from_bytes(&map().to_bytes()), Some(map()));
        assert_eq!(TensorMap::from_bytes(&[0; SIZE]), None);
    }

    #[test]
    fn steps_leave_elements_out() {
        assert_eq!(map().taken(), [256, 3, 2, 1, 1]);
    }

    #[test]
    fn rows_are_swizzled_by_their_number() {
        assert_eq!(Swizzle::None.apply(0x3ff), 0x3ff);
        assert_eq!(Swizzle::Bytes32.apply(0x80), 0x90);
        assert_eq!(Swizzle::Bytes64.apply(0x190), 0x1a0);
        assert_eq!(Swizzle::Bytes128.apply(0x3f4), 0x384);
    }
}
