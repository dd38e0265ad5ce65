//! A tenant's step word for those who cannot follow a view: a device that looks at it by itself.

use crate::layout::TenantPages;
use crate::mapping::{FIRST_PAGE, FirstPage};
use crate::step;
use core::ffi::c_void;

/// The page with a tenant's step word, mapped read-only at a place that stays that tenant's until this is dropped, whoever
/// the view that it came from shows by then. When the tenant has ended, the word stays as it was last.
pub struct StepPage(FirstPage);

impl StepPage {
    /// Bytes of it.
    pub const BYTES: usize = FIRST_PAGE;
    /// Where in it the word is, which has 32 bits.
    pub const WORD: usize = core::mem::offset_of!(TenantPages, step);
    /// The bit of the word that is set while the tenant is busy.
    pub const BUSY: u32 = step::BUSY;

    pub(crate) const fn new(page: FirstPage) -> Self {
        Self(page)
    }

    /// Where it begins. Only to be read.
    #[must_use]
    pub const fn start(&self) -> *mut c_void {
        self.0.start()
    }
}

const _: () = {
    assert!(StepPage::WORD.is_multiple_of(align_of::<u32>()) && StepPage::WORD + size_of::<u32>() <= StepPage::BYTES);
    assert!(core::mem::offset_of!(crate::layout::StepRecord, word) == 0);
};
