//! Where a kernel's parameters lie.

use super::refusal::{Finding, RefusalKind};
use crate::ScalarType;
use crate::ast::{Function, Module, Space, Variable};

/// Bytes that every kernel may have.
const USUAL_LIMIT: u32 = 4096;

/// Bytes that a kernel may have for [`LARGE_TARGET`] and from [`LARGE_VERSION`] on.
const LARGE_LIMIT: u32 = 32_764;
const LARGE_TARGET: u32 = 70;
const LARGE_VERSION: (u32, u32) = (8, 1);

/// The alignment of the extra parameter, which has 64-bit words.
const WORK_ALIGNMENT: u32 = 8;

/// A kernel's extra parameter, behind the original's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Where the extra one lies.
    pub(super) work_offset: u32,
    /// The version of PTX that allows as many, where the module's own may not.
    pub(super) version: Option<(u32, u32)>,
}

/// The number of the module's target: 90 for `sm_90a`.
pub(super) fn architecture(module: &Module) -> Option<u32> {
    let number = module.targets.iter().find_map(|target| target.strip_prefix("sm_"))?;
    number.trim_end_matches(|last: char| last.is_ascii_lowercase()).parse().ok()
}

/// Bytes and alignment of one variable; None where it has no size or one beyond all limits.
pub(super) fn size_and_alignment(variable: &Variable, declarator: usize) -> Option<(u32, u32)> {
    let element = u32::try_from(variable.ty.size()).ok()?.checked_mul(variable.vector.unwrap_or(1).into())?;
    let dimensions = &variable.declarators.get(declarator)?.dimensions;
    let size = dimensions.iter().try_fold(element, |size, length| size.checked_mul(u32::try_from((*length)?).ok()?))?;
    Some((size, variable.align.unwrap_or(element).max(1)))
}

/// The bytes of the parameters alone, as far as they can be counted.
pub(super) fn size(kernel: &Function) -> u32 {
    place(kernel).unwrap_or_default()
}

fn place(kernel: &Function) -> Option<u32> {
    kernel.parameters.iter().try_fold(0_u32, |end, parameter| {
        let (size, alignment) = size_and_alignment(parameter, 0)?;
        end.checked_next_multiple_of(alignment)?.checked_add(size)
    })
}

/// # Errors
///
/// Where the extra parameter does not fit, or a parameter is a texture or of no known size.
pub(super) fn layout(kernel: &Function, module: &Module, work_size: u32) -> Result<Layout, Finding> {
    for parameter in &kernel.parameters {
        if matches!(parameter.ty, ScalarType::TexRef | ScalarType::SamplerRef | ScalarType::SurfRef) {
            return Err(Finding::at(RefusalKind::Texture, parameter, parameter.span.start));
        }
        let constant = parameter.pointer.is_some_and(|pointer| pointer.space == Some(Space::Const));
        if parameter.space != Space::Param || constant {
            return Err(Finding::at(RefusalKind::Variable, parameter, parameter.span.start));
        }
    }
    let too_many = || Finding::whole(RefusalKind::Parameters, format!("'{}'", kernel.name));
    let size = place(kernel).ok_or_else(too_many)?;
    let work_offset = size.checked_next_multiple_of(WORK_ALIGNMENT).ok_or_else(too_many)?;
    let end = work_offset.checked_add(work_size).ok_or_else(too_many)?;
    let large = end > USUAL_LIMIT;
    if end > LARGE_LIMIT || large && architecture(module).is_none_or(|target| target < LARGE_TARGET) {
        return Err(too_many());
    }
    let version = (large && module.version < LARGE_VERSION).then_some(LARGE_VERSION);
    Ok(Layout { work_offset, version })
}
