//! Whether what a driver gave is what a file expects.

use crate::case::{Case, Expectation};
use crate::runner::Observed;
use detshare_cuda::types::CUresult;

/// How many of a thread's input words a message shows.
const SHOWN_INPUT: usize = 8;

/// What is different, if anything is.
pub(crate) fn judge(case: &Case, observed: &Observed) -> Result<(), String> {
    match (&case.expectation, observed) {
        (Expectation::Words(expected), Observed::Words(words)) => compare(case, expected, words),
        (Expectation::Code(name), Observed::Refused(refused)) => {
            // Elsewhere it would mean that the kernel did not even start.
            let at_the_kernel = refused.call == "cuCtxSynchronize";
            let as_expected = crate::call::code_name(refused.code) == *name;
            if at_the_kernel && as_expected { Ok(()) } else { Err(format!("{refused} instead of {name}")) }
        }
        (Expectation::Code(name), Observed::Words(_)) => {
            Err(format!("{} instead of {name}", crate::call::code_name(CUresult::CUDA_SUCCESS)))
        }
        (Expectation::Words(_), Observed::Refused(refused)) => Err(refused.to_string()),
        (_, Observed::Lost(reason)) => Err(reason.clone()),
    }
}

fn compare(case: &Case, expected: &[u32], words: &[u32]) -> Result<(), String> {
    if expected.len() != words.len() {
        return Err(format!("{} words instead of {}", words.len(), expected.len()));
    }
    let differs = |(expected, word): &(&u32, &u32)| !is_close(**expected, **word, case.tolerance_ulp);
    let different = expected.iter().zip(words).filter(differs).count();
    let Some(at) = expected.iter().zip(words).position(|pair| differs(&pair)) else { return Ok(()) };
    let input = input_of(case, at);
    let more = if different > 1 { format!(", and {} more", different - 1) } else { String::new() };
    Err(format!("word {at} is {:#010x} instead of {:#010x}{input}{more}", words[at], expected[at]))
}

/// What the thread read that wrote this word.
fn input_of(case: &Case, word: usize) -> String {
    let thread = word / case.words as usize;
    let stride = case.stride as usize;
    let own = if stride == 0 { &case.input[..] } else { &case.input[thread * stride..][..stride] };
    if own.is_empty() {
        return String::new();
    }
    let mut shown: Vec<_> = own.iter().take(SHOWN_INPUT).map(|word| format!("{word:#010x}")).collect();
    if own.len() > SHOWN_INPUT {
        shown.push("…".into());
    }
    format!(" (input {})", shown.join(" "))
}

/// Whether two words are the same, or two `f32` at most so many steps apart. NaNs are all one.
fn is_close(expected: u32, word: u32, tolerance_ulp: u32) -> bool {
    if expected == word {
        return true;
    }
    let (a, b) = (f32::from_bits(expected), f32::from_bits(word));
    if tolerance_ulp == 0 || a.is_nan() || b.is_nan() {
        return tolerance_ulp > 0 && a.is_nan() && b.is_nan();
    }
    // What has no neighbours is right or wrong.
    if a.is_infinite() || b.is_infinite() {
        return false;
    }
    place(expected).abs_diff(place(word)) <= tolerance_ulp.into()
}

/// The place of a number among all, so that neighbours are one apart and the two zeros are at one place.
fn place(bits: u32) -> i64 {
    let magnitude = i64::from(bits & 0x7fff_ffff);
    if bits >> 31 == 0 { magnitude } else { -magnitude }
}
