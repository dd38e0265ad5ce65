//! The instructions of the arithmetic classes, as templates (see [`crate::template`]).

mod conversions;
mod floats;
mod integers;
mod video;

pub(crate) use conversions::*;
pub(crate) use floats::*;
pub(crate) use integers::*;
pub(crate) use video::*;
