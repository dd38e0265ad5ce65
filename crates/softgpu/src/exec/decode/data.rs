//! Initial values of variables.
#![allow(clippy::cast_possible_truncation, reason = "values are stored with as many bytes as their type has")]

use super::error::DecodeError;
use super::link::{Datum, Linked, Symbol};
use crate::exec::op::Rounding;
use crate::exec::program::FUNCTION_WINDOW;
use crate::exec::soft;
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{InitValue, Initializer};
use std::collections::BTreeSet;

/// Gives all variables in device memory their values; zero where the source has none.
pub(super) fn initialise(linked: &Linked<'_>) -> Result<(), DecodeError> {
    for datum in &linked.data {
        let size = usize::try_from(datum.size).unwrap_or(usize::MAX);
        let to = core::ptr::with_exposed_provenance_mut::<u8>(datum.address as usize);
        // SAFETY: the address was given for a variable of that size, and nobody else knows it yet.
        unsafe { to.write_bytes(0, size) };
        if let Some(initializer) = &datum.declarator.initializer {
            let mut bytes = vec![0; size];
            let mut filler = Filler { linked, datum, bytes: &mut bytes };
            let dimensions: Vec<u64> = datum.declarator.dimensions.iter().map(|size| size.unwrap_or(0)).collect();
            filler.fill(initializer, &dimensions, 0)?;
            // SAFETY: as above.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), size) };
        }
    }
    Ok(())
}

/// The functions whose addresses variables hold.
pub(super) fn functions_in_variables(linked: &Linked<'_>) -> BTreeSet<u32> {
    let mut functions = BTreeSet::new();
    for datum in &linked.data {
        let mut left: Vec<&Initializer> = datum.declarator.initializer.iter().collect();
        while let Some(initializer) = left.pop() {
            match initializer {
                Initializer::List(values) => left.extend(values),
                Initializer::Value(InitValue::Symbol(symbol) | InitValue::Mask { symbol, .. }) => {
                    if let Some(Symbol::Function(number)) = linked.find(datum.module, &symbol.name) {
                        functions.insert(number);
                    }
                }
                Initializer::Value(_) | Initializer::Field { .. } => {}
            }
        }
    }
    functions
}

struct Filler<'a, 'b> {
    linked: &'a Linked<'a>,
    datum: &'a Datum<'a>,
    bytes: &'b mut [u8],
}

impl Filler<'_, '_> {
    fn bad(&self, reason: &'static str) -> DecodeError {
        DecodeError::BadVariable { name: self.datum.declarator.name.clone(), reason }
    }

    /// Stores a value, or a list of values that each take an equal part of the outermost dimension. Vectors are
    /// the innermost.
    fn fill(&mut self, initializer: &Initializer, dimensions: &[u64], at: u64) -> Result<(), DecodeError> {
        match initializer {
            Initializer::Value(value) => self.store(value, at),
            Initializer::List(values) => {
                let inner = dimensions.get(1..).unwrap_or_default();
                let scalar = self.datum.variable.ty.size() as u64;
                let element = super::link::element_size(self.datum.variable);
                let stride = match dimensions {
                    [] => scalar,
                    _ => inner.iter().fold(element, |size, count| size.saturating_mul(*count)),
                };
                for (number, value) in (0u64..).zip(values) {
                    self.fill(value, inner, at.saturating_add(number.saturating_mul(stride)))?;
                }
                Ok(())
            }
            Initializer::Field { .. } => Ok(()),
        }
    }

    fn store(&mut self, value: &InitValue, at: u64) -> Result<(), DecodeError> {
        let ty = self.datum.variable.ty;
        let bits = match value {
            InitValue::Integer(value) => literal_integer(*value, ty),
            InitValue::F32(bits) => literal_f32(*bits, ty),
            InitValue::F64(bits) => literal_f64(*bits, ty),
            InitValue::Symbol(symbol) => self.address(&symbol.name)?.wrapping_add_signed(symbol.offset),
            InitValue::Mask { mask, symbol } => {
                let address = self.address(&symbol.name)?.wrapping_add_signed(symbol.offset);
                (address & mask).checked_shr(mask.trailing_zeros()).unwrap_or(0)
            }
        };
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let to = self.bytes.get_mut(start..).and_then(|bytes| bytes.get_mut(..ty.size().min(8)));
        match to {
            Some(to) => {
                let size = to.len();
                to.copy_from_slice(&bits.to_le_bytes()[..size]);
                Ok(())
            }
            None => Err(self.bad("it has more values than elements")),
        }
    }

    fn address(&self, name: &str) -> Result<u64, DecodeError> {
        match self.linked.find(self.datum.module, name) {
            Some(Symbol::Data(number)) => Ok(self.linked.data[number].address),
            Some(Symbol::Function(number)) => Ok(FUNCTION_WINDOW + u64::from(number)),
            Some(Symbol::Shared(_)) => Err(self.bad("a shared variable has no address before a launch")),
            None => Err(DecodeError::Unresolved { name: name.to_string(), line: None }),
        }
    }
}

/// A literal as the bits of a type.
pub(super) fn literal_integer(value: i128, ty: ScalarType) -> u64 {
    #[allow(clippy::cast_precision_loss, reason = "so does every compiler")]
    let as_float = || literal_float(value as f64, ty);
    match ty {
        ScalarType::F32 | ScalarType::F64 => as_float().unwrap_or_default(),
        #[allow(clippy::cast_sign_loss, reason = "the low bits are what is meant")]
        _ => value as u64,
    }
}

/// `0f…` as the bits of a type.
pub(super) fn literal_f32(bits: u32, ty: ScalarType) -> u64 {
    // Not even a NaN is touched where nothing has to be converted.
    let converted = || literal_float(f64::from(f32::from_bits(bits)), ty);
    if ty == ScalarType::F32 { bits.into() } else { converted().unwrap_or(bits.into()) }
}

/// `0d…` and `1.0` as the bits of a type.
pub(super) fn literal_f64(bits: u64, ty: ScalarType) -> u64 {
    let converted = || literal_float(f64::from_bits(bits), ty);
    if ty == ScalarType::F64 { bits } else { converted().unwrap_or(bits) }
}

/// A number as the bits of a floating-point type.
fn literal_float(value: f64, ty: ScalarType) -> Option<u64> {
    Some(match ty {
        ScalarType::F64 => value.to_bits(),
        ScalarType::F32 => (value as f32).to_bits().into(),
        ScalarType::F16 => soft::convert(value.to_bits(), soft::F64, soft::F16, Rounding::Nearest),
        ScalarType::BF16 => soft::convert(value.to_bits(), soft::F64, soft::BF16, Rounding::Nearest),
        _ => return None,
    })
}
