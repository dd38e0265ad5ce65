//! What things take on the machine that is modelled.

/// Times in nanoseconds, parts in thousandths. [`Costs::H200`] says where each figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A launch keeps the host busy for so long, and begins on the GPU after it.
    pub launch_ns: u64,
    /// What a launch costs more if the stream goes to another lane.
    pub move_ns: u64,
    /// Until others see that a tenant is busy.
    pub busy_seen_ns: u64,
    /// Until a program that waits for its work sees that it is finished, and the board says that the tenant is idle.
    pub idle_seen_ns: u64,
    /// The same for a program that does not wait: somebody looks now and then.
    pub look_ns: u64,
    /// Until a held launch goes on, after what it waited for.
    pub wake_ns: u64,
    /// How long a process has the GPU, where processes take turns.
    pub slice_ns: u64,
    /// How long nobody has it when it changes hands.
    pub switch_ns: u64,
    /// How long a block of a long kernel runs: for so long SMs that are full have no room for anybody else.
    pub block_ns: u64,
    /// After another tenant's work, kernels take longer by this part, …
    pub cold_part: u64,
    /// … until it adds up to this.
    pub cold_ns: u64,
    /// The part of the memory bandwidth that a compute-bound kernel takes on all SMs. One that is bound by memory takes all.
    pub compute_bandwidth: u64,
    /// How fast a memory-bound kernel is on half of the SMs, where nobody measured it.
    pub memory_on_half: u64,
}

impl Costs {
    /// As measured on an H200, or chosen so that the model gives what was measured there.
    pub const H200: Self = Self {
        // Measured: a launch, 3 µs; record and wait to go elsewhere, 0.4 µs.
        launch_ns: 3_000,
        move_ns: 400,
        // Measured between processes: 0.87 µs (p99) and 4.9 µs (p50).
        busy_seen_ns: 870,
        wake_ns: 4_900,
        // Measured: asking an event.
        idle_seen_ns: 1_500,
        // The shim's own: how long a held launch sleeps before it looks at its own work.
        look_ns: 50_000,
        // Chosen: a small step with a p99 of 2.8 ms, and one of 4.8 ms that takes about 11 ms.
        slice_ns: 2_000_000,
        switch_ns: 50_000,
        // Chosen: a small step of 1.19 ms takes 8.9 ms (p50) beside training under MPS.
        block_ns: 60_000,
        // Measured: +5 % for a step of 1.2 ms, +2.4 % for one of 4.8 ms.
        cold_part: 50,
        cold_ns: 115_000,
        // Chosen: a memory-bound step on 96 SMs takes 5.8 ms instead of 4.9 ms beside training on the other 36.
        compute_bandwidth: 200,
        // Measured: a memory-bound step on 64 of 132 SMs takes 5 % longer.
        memory_on_half: 950,
    };
    /// No time may be longer.
    const LONGEST_NS: u64 = 1_000_000_000;

    /// What is wrong with them.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let times = [
            self.launch_ns,
            self.move_ns,
            self.busy_seen_ns,
            self.idle_seen_ns,
            self.look_ns,
            self.wake_ns,
            self.slice_ns,
            self.switch_ns,
            self.block_ns,
            self.cold_ns,
        ];
        if times.into_iter().any(|ns| ns > Self::LONGEST_NS) {
            return Err("a cost is longer than a second");
        }
        if self.slice_ns == 0 {
            return Err("a slice without length");
        }
        if [self.cold_part, self.compute_bandwidth, self.memory_on_half].into_iter().any(|part| part > 1_000) {
            return Err("a part is more than 1000 thousandths");
        }
        Ok(())
    }
}
