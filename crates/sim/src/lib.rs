//! The policies in simulated time, on a model of one GPU: hours of traffic in seconds, without a GPU, and the same result
//! each time.
//!
//! A [`trace::Trace`] says what tenants launch and when; it is recorded on a GPU or made in code ([`synthetic`]). A
//! [`Simulator`] lets them share a GPU in one [`Way`] or another: by a policy, whose `decide` is asked at each launch with the
//! same view that the shim would have, or as the driver does it, by time-slicing or MPS. A [`report::Report`] says how long
//! requests took and how much work the others got done, against each tenant alone.
//!
//! The model, of which `docs/sim.md` has the constants:
//!
//! - **The GPU** (`gpu.rs`) has streams, one for each tenant, whose kernels run in their order. Kernels of different streams run
//!   at once, each at a speed that depends on the SMs that it has, on who else is on them and on memory bandwidth
//!   (`speed.rs`), or by turns.
//! - **Tenants** (`tenant.rs`) have one thread. A latency tenant's begins a step when a request comes, launches it and waits
//!   for it; requests queue up. An LLM server (`server.rs`) batches them, and its steps follow from which run. A best-effort tenant's launches ahead, step after step, as far as the driver's queue allows.
//! - **The gate** (`simulation.rs`) asks the policy, holds a launch as long as it says, counts what was held and
//!   what is in flight, and lets nothing be held for longer than the longest hold.
//! - **Time** (`events.rs`) is whole nanoseconds, and work is too: nothing depends on rounding, on a machine or on chance.
//!
//! It does not run programs and does not know what kernels compute. It tells which way is better and by how much about; for
//! figures to quote, measure.
//!
//! ```
//! use detshare_sim::{Settings, Simulator, Way, synthetic};
//!
//! let trace = synthetic::small_beside_training(synthetic::one_client());
//! let settings = Settings { run_ns: 1_000_000_000, ..Settings::default() };
//! let simulator = Simulator::new(&trace, settings)?;
//! let slo_aware = simulator.run(Way::named("slo-aware").unwrap());
//! let mps = simulator.run(Way::Mps);
//! assert!(slo_aware.latency[0].times.p99_ns < mps.latency[0].times.p99_ns);
//! assert!(slo_aware.best_effort[0].share < mps.best_effort[0].share);
//! # Ok::<(), detshare_sim::Error>(())
//! ```

mod costs;
mod events;
mod gpu;
mod random;
pub mod record;
pub mod report;
mod server;
mod settings;
mod simulation;
mod speed;
pub mod synthetic;
mod tenant;
pub mod trace;

pub use costs::Costs;
pub use settings::{Error, Settings, Way};

use report::{Alone, Report};
use simulation::Simulation;
use speed::Model;
use tenant::Tenant;
use trace::Trace;

/// Simulates a trace, in one way or another.
#[derive(Debug)]
pub struct Simulator<'a> {
    trace: &'a Trace,
    settings: Settings,
    models: Vec<Model>,
    alone: Vec<Alone>,
}

impl<'a> Simulator<'a> {
    /// For this trace; lets each tenant run alone, to compare with.
    ///
    /// # Errors
    ///
    /// What is wrong with the trace or the settings.
    pub fn new(trace: &'a Trace, settings: Settings) -> Result<Self, Error> {
        trace.check()?;
        settings.check(trace)?;
        let models = trace.kernels.iter().map(|kernel| Model::new(kernel, trace.gpu.sms, &settings.costs)).collect();
        let mut simulator = Self { trace, settings, models, alone: Vec::new() };
        simulator.alone = simulator.share(Way::Alone).iter().map(Alone::new).collect();
        Ok(simulator)
    }

    /// Lets the tenants share the GPU in a way.
    #[must_use]
    pub fn run(&self, way: Way) -> Report {
        Report::new(way, &self.settings, &mut self.share(way), &self.alone)
    }

    fn share(&self, way: Way) -> Vec<Tenant<'_>> {
        let tenant = |(number, tenant)| Tenant::new(tenant, &self.models, self.settings.seed, number);
        let tenants = self.trace.tenants.iter().enumerate().map(tenant);
        let run = |tenants| Simulation::new(&self.settings, way, &self.models, self.trace.gpu.sms, tenants).run();
        match way {
            Way::Alone => tenants.flat_map(|tenant| run(vec![tenant])).collect(),
            _ => run(tenants.collect()),
        }
    }
}
