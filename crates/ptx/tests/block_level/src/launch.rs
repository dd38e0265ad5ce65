//! How a kernel is launched: `name <<<4x3x2, 32x2, 128>>> (zero 4096, bits 4096, u32 7)`.
//!
//! | argument | what the kernel gets |
//! | --- | --- |
//! | `zero N`, `fill N` | the address of N bytes that are 0, or 0xcc |
//! | `bits N`, `f32 N`, `f64 N`, `f16 N` | the address of N random bytes, or of N bytes of numbers between -1 and 1 |
//! | `below M N` | the address of N bytes of random `u32` below M |
//! | `u8 =X` to `u64 =X`, `f32 =X`, `f64 =X` | the number |
//! | `bytes =N` | N random bytes by value |

use anyhow::{Context, Result, bail, ensure};
use detshare_kernel_fuzz::{Random, hash_text};

/// A driver takes no more threads in a block.
const MOST_THREADS: u32 = 1024;
/// So that a kernel stays quick on a CPU, also when each block runs alone.
const MOST_BLOCKS: u32 = 4096;

/// One argument of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Argument {
    /// Memory that begins with this, and is compared afterwards.
    Memory(Vec<u8>),
    /// The bytes themselves.
    Value(Vec<u8>),
}

/// A kernel with its grid, its blocks and its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launch {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<Argument>,
}

impl Launch {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (kernel, rest) = text.split_once("<<<").context("no <<<")?;
        let (shape, rest) = rest.split_once(">>>").context("no >>>")?;
        let arguments = rest.trim().strip_prefix('(').and_then(|it| it.strip_suffix(')')).context("no (arguments)")?;
        let parts: Vec<&str> = shape.split(',').map(str::trim).collect();
        let (grid, block) = match parts.as_slice() {
            [grid, block] | [grid, block, _] => (dimensions(grid)?, dimensions(block)?),
            _ => bail!("{shape:?} is no shape"),
        };
        let shared = parts.get(2).map_or(Ok(0), |text| text.parse()).context("no size of shared memory")?;
        let kernel = kernel.trim().to_string();
        let mut random = Random::new(hash_text(&kernel));
        let arguments = arguments.split(',').map(str::trim).filter(|it| !it.is_empty());
        let arguments: Result<Vec<_>> = arguments.map(|text| argument(text, &mut random)).collect();
        let launch = Self { kernel, grid, block, shared, arguments: arguments? };
        ensure!((1..=MOST_THREADS).contains(&launch.threads()), "{} threads are no block", launch.threads());
        ensure!((1..=MOST_BLOCKS).contains(&launch.blocks()), "{} blocks are no grid", launch.blocks());
        Ok(launch)
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.grid.iter().fold(1, |product, size| product.saturating_mul(*size))
    }

    /// Of one block.
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().fold(1, |product, size| product.saturating_mul(*size))
    }
}

/// `4x3x2`; what is not named is 1.
fn dimensions(text: &str) -> Result<[u32; 3]> {
    let sizes: Result<Vec<u32>, _> = text.split('x').map(str::parse).collect();
    let sizes = sizes.with_context(|| format!("{text:?} is no size"))?;
    match sizes.as_slice() {
        [x] => Ok([*x, 1, 1]),
        [x, y] => Ok([*x, *y, 1]),
        [x, y, z] => Ok([*x, *y, *z]),
        _ => bail!("{text:?} has too many dimensions"),
    }
}

fn argument(text: &str, random: &mut Random) -> Result<Argument> {
    let (kind, rest) = text.split_once(' ').with_context(|| format!("{text:?} is no argument"))?;
    if let Some(number) = rest.strip_prefix('=') {
        return value(kind, number, random).map(Argument::Value).with_context(|| format!("{text:?} is no value"));
    }
    let words: Result<Vec<u32>, _> = rest.split_whitespace().map(str::parse).collect();
    let words = words.with_context(|| format!("{text:?} is no argument"))?;
    let memory = match (kind, words.as_slice()) {
        ("zero", [bytes]) => vec![0; *bytes as usize],
        ("fill", [bytes]) => vec![0xcc; *bytes as usize],
        ("bits", [bytes]) => filled(*bytes, || word(random).to_le_bytes().to_vec()),
        ("f32", [bytes]) => filled(*bytes, || unit(random).to_le_bytes().to_vec()),
        ("f64", [bytes]) => filled(*bytes, || f64::from(unit(random)).to_le_bytes().to_vec()),
        ("f16", [bytes]) => filled(*bytes, || half(random).to_le_bytes().to_vec()),
        ("below", [bound, bytes]) => filled(*bytes, || random.below(*bound).to_le_bytes().to_vec()),
        _ => bail!("{text:?} is no argument"),
    };
    Ok(Argument::Memory(memory))
}

/// So many bytes of what the function gives.
fn filled(bytes: u32, mut element: impl FnMut() -> Vec<u8>) -> Vec<u8> {
    let mut memory = Vec::new();
    while memory.len() < bytes as usize {
        memory.extend(element());
    }
    memory.truncate(bytes as usize);
    memory
}

fn value(kind: &str, number: &str, random: &mut Random) -> Result<Vec<u8>> {
    Ok(match kind {
        "u8" => number.parse::<u8>()?.to_le_bytes().to_vec(),
        "u16" => number.parse::<u16>()?.to_le_bytes().to_vec(),
        "u32" => number.parse::<u32>()?.to_le_bytes().to_vec(),
        "s32" => number.parse::<i32>()?.to_le_bytes().to_vec(),
        "u64" => number.parse::<u64>()?.to_le_bytes().to_vec(),
        "f32" => number.parse::<f32>()?.to_le_bytes().to_vec(),
        "f64" => number.parse::<f64>()?.to_le_bytes().to_vec(),
        "bytes" => filled(number.parse()?, || word(random).to_le_bytes().to_vec()),
        _ => bail!("no values are called {kind}"),
    })
}

/// Any word.
fn word(random: &mut Random) -> u32 {
    u32::try_from(random.bits() >> 32).unwrap_or_default()
}

/// A number from -1 to 1.
fn unit(random: &mut Random) -> f32 {
    // So many bits fit into an `f32`.
    const BITS: u32 = 15;
    let steps = i16::try_from(word(random) >> (31 - BITS)).unwrap_or(i16::MAX);
    (f32::from(steps) - f32::from(i16::MAX) / 2.0) / (f32::from(i16::MAX) / 2.0)
}

/// The bits of an `f16` from -1 to 1.
fn half(random: &mut Random) -> u16 {
    const ONE: u32 = 0x3c00;
    let bits = word(random);
    u16::try_from((bits & 0x8000) | (bits >> 18).min(ONE)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_reads_as_in_cuda() {
        let launch = Launch::parse("add <<<4x3, 32x2x1, 16>>> (zero 8, u32 =7, below 3 16, f32 =-1.5)").unwrap();
        assert_eq!((launch.kernel.as_str(), launch.grid, launch.block), ("add", [4, 3, 1], [32, 2, 1]));
        assert_eq!((launch.blocks(), launch.threads(), launch.shared), (12, 64, 16));
        assert_eq!(launch.arguments[0], Argument::Memory(vec![0; 8]));
        assert_eq!(launch.arguments[1], Argument::Value(vec![7, 0, 0, 0]));
        let Argument::Memory(words) = &launch.arguments[2] else { panic!() };
        assert!(words.chunks(4).all(|word| word[0] < 3 && word[1..] == [0; 3]));
        assert_eq!(launch.arguments[3], Argument::Value((-1.5f32).to_le_bytes().to_vec()));
        assert!(Launch::parse("none <<<1, 1>>> ()").unwrap().arguments.is_empty());
    }

    #[test]
    fn what_is_no_launch_is_refused() {
        for text in ["add", "add <<<1>>> ()", "add <<<1, 2000>>> ()", "add <<<0, 1>>> ()", "add <<<1, 1>>> (zero)"] {
            assert!(Launch::parse(text).is_err(), "{text}");
        }
        for argument in ["u8 =300", "what 3", "u32 =x", "below 3"] {
            assert!(Launch::parse(&format!("add <<<1, 1>>> ({argument})")).is_err(), "{argument}");
        }
    }
}
