//! The types of single elements.

macro_rules! scalar_types {
    ($($variant:ident $name:literal $size:literal,)*) => {
        /// The type of a single element, in a declaration or as an instruction's modifier.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ScalarType {
            $(#[doc = concat!("`.", $name, "`")] $variant,)*
        }

        impl ScalarType {
            /// Its name without the dot: `f32`.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Its size in bytes; one byte for what is smaller than a byte, eight for a handle.
            #[must_use]
            pub const fn size(&self) -> usize {
                match self {
                    $(Self::$variant => $size,)*
                }
            }

            /// The type with that name, written without its dot.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

scalar_types! {
    B1 "b1" 1,
    B4 "b4" 1,
    B6 "b6" 1,
    B8 "b8" 1,
    B16 "b16" 2,
    B32 "b32" 4,
    B64 "b64" 8,
    B128 "b128" 16,
    U4 "u4" 1,
    U8 "u8" 1,
    U16 "u16" 2,
    U32 "u32" 4,
    U64 "u64" 8,
    U8x4 "u8x4" 4,
    U16x2 "u16x2" 4,
    S4 "s4" 1,
    S8 "s8" 1,
    S16 "s16" 2,
    S32 "s32" 4,
    S64 "s64" 8,
    S8x4 "s8x4" 4,
    S16x2 "s16x2" 4,
    F16 "f16" 2,
    F16x2 "f16x2" 4,
    BF16 "bf16" 2,
    BF16x2 "bf16x2" 4,
    TF32 "tf32" 4,
    F32 "f32" 4,
    F32x2 "f32x2" 8,
    F64 "f64" 8,
    E4M3 "e4m3" 1,
    E4M3x2 "e4m3x2" 2,
    E4M3x4 "e4m3x4" 4,
    E5M2 "e5m2" 1,
    E5M2x2 "e5m2x2" 2,
    E5M2x4 "e5m2x4" 4,
    E2M3 "e2m3" 1,
    E2M3x2 "e2m3x2" 2,
    E2M3x4 "e2m3x4" 4,
    E3M2 "e3m2" 1,
    E3M2x2 "e3m2x2" 2,
    E3M2x4 "e3m2x4" 4,
    E2M1 "e2m1" 1,
    E2M1x2 "e2m1x2" 1,
    E2M1x4 "e2m1x4" 2,
    UE8M0 "ue8m0" 1,
    UE8M0x2 "ue8m0x2" 2,
    Pred "pred" 1,
    TexRef "texref" 8,
    SamplerRef "samplerref" 8,
    SurfRef "surfref" 8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_types() {
        for ty in [ScalarType::B8, ScalarType::BF16x2, ScalarType::E4M3x2, ScalarType::Pred, ScalarType::SurfRef] {
            assert_eq!(ScalarType::from_name(ty.name()), Some(ty));
        }
        assert_eq!(ScalarType::from_name(".f32"), None);
    }

    #[test]
    fn sizes_are_in_bytes() {
        assert_eq!(ScalarType::B128.size(), 16);
        assert_eq!(ScalarType::F16x2.size(), 4);
        assert_eq!(ScalarType::B1.size(), 1);
    }
}
