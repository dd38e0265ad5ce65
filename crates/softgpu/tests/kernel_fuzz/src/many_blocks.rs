//! Generated kernels of several blocks, in one, two and three dimensions, for whoever launches kernels in parts.

use crate::generate;

/// A kernel, and how it is launched: with the address of its output, and that of its input.
#[derive(Debug, Clone)]
pub struct Generated {
    /// What kind of kernel it is.
    pub class: &'static str,
    /// Its name in [`ptx`](Self::ptx).
    pub name: String,
    /// What stands behind [`MODULE_HEADER`](crate::MODULE_HEADER); several kernels may stand in one module.
    pub ptx: String,
    /// Its blocks.
    pub grid: [u32; 3],
    /// A block's threads.
    pub block: [u32; 3],
    /// Its input.
    pub input: Vec<u32>,
    /// The words of its output, which begin as 0.
    pub output_words: usize,
}

/// The kernel with that number: always the same text and the same input.
#[must_use]
pub fn many_blocks(seed: u64, number: u64) -> Generated {
    let kernel = generate::many_blocks(seed, number);
    Generated {
        class: kernel.class,
        ptx: kernel.ptx(),
        grid: kernel.grid,
        block: kernel.block,
        input: kernel.input(),
        output_words: kernel.output_words(),
        name: kernel.name,
    }
}

#[cfg(test)]
mod tests {
    use super::many_blocks;

    #[test]
    fn grids_have_one_to_three_dimensions_and_most_have_several_blocks() {
        let kernels: Vec<_> = (0..200).map(|number| many_blocks(1, number)).collect();
        let several = kernels.iter().filter(|it| it.grid.iter().product::<u32>() > 1).count();
        assert!(several > 180, "{several}");
        for dimension in 0..3 {
            assert!(kernels.iter().any(|it| it.grid[dimension] > 1));
        }
        assert_eq!(many_blocks(1, 7).ptx, many_blocks(1, 7).ptx);
        assert_ne!(many_blocks(1, 7).input, many_blocks(2, 7).input);
    }
}
