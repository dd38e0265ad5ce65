//! Metrics as Prometheus reads them.
//!
//! The daemon's own counters live as long as it does. What is said of tenants is taken from their pages when somebody
//! asks: nothing is kept for those who have left.

use crate::service::Service;
use detshare_api::{Missed, MpsState, Tenant};
use detshare_policy::objective::NAMES;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

const PREFIX: &str = "detshare";
const SECOND_NS: f64 = 1e9;

/// What has happened since the daemon was started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) joins: Counter,
    pub(crate) leaves: Counter,
    pub(crate) deaths: Counter,
    pub(crate) refused: Counter,
    pub(crate) reloads: Counter,
    pub(crate) failed_reloads: Counter,
    pub(crate) profile_saves: Counter,
}

type FloatGauge = Gauge<f64, AtomicU64>;
type FloatCounter = Counter<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    tenant: String,
    pid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InfoLabels {
    tenant: String,
    pid: u32,
    class: String,
    lane: String,
    gpu: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuantileLabels {
    tenant: String,
    pid: u32,
    quantile: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectiveLabels {
    tenant: String,
    pid: u32,
    objective: &'static str,
}

/// All of it, as text.
pub(crate) fn encode(service: &Service) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    register_daemon(&mut registry, service);
    register_tenants(&mut registry, &service.tenants());
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

fn register_daemon(registry: &mut Registry, service: &Service) {
    let Counters { joins, leaves, deaths, refused, reloads, failed_reloads, profile_saves } = service.counters();
    for (name, help, counter) in [
        ("joins", "Tenants that have joined", joins),
        ("leaves", "Tenants that have left or were sent away while their process lives on", leaves),
        ("deaths", "Tenants whose process has ended", deaths),
        ("refused", "Connections of tenants that were refused", refused),
        ("reloads", "Times that the configuration was read again", reloads),
        ("failed_reloads", "Times that it was broken then", failed_reloads),
        ("profile_saves", "Times that a file with profiles was written", profile_saves),
    ] {
        registry.register(name, help, counter.clone());
    }
    let status = service.status();
    let gauge = |value: f64| {
        let gauge = FloatGauge::default();
        gauge.set(value);
        gauge
    };
    let whole = |number: usize| gauge(f64::from(u32::try_from(number).unwrap_or(u32::MAX)));
    registry.register_with_unit(
        "uptime",
        "How long the daemon has run",
        Unit::Seconds,
        gauge(service.uptime().as_secs_f64()),
    );
    registry.register("tenants", "Tenants that are here", whole(status.tenants));
    registry.register("slots", "Tenants that there can be", whole(status.slots));
    registry.register("profile_files", "Files with profiles", whole(status.profiles.files));
    registry.register("profiles_set_aside", "Files with profiles that made no sense", whole(status.profiles.set_aside));
    if let Some(mps) = status.mps {
        let restarts = Counter::<u64>::default();
        restarts.inc_by(mps.restarts);
        registry.register("mps_restarts", "Times that MPS was started again", restarts);
        registry.register("mps_up", "Whether MPS runs", gauge(f64::from(u8::from(mps.state == MpsState::Running))));
    }
}

/// A counter of whole numbers by tenant: its name, what it counts, and how it is read.
type CounterRow = (&'static str, &'static str, fn(&Tenant) -> u64);
/// Likewise for what goes up and down.
type GaugeRow = (&'static str, &'static str, fn(&Tenant) -> f64);

const COUNTERS: [CounterRow; 4] = [
    ("tenant_steps", "Steps so far", |tenant| tenant.step),
    ("tenant_launches", "Launches so far", |tenant| tenant.launches),
    ("tenant_finished", "Launches that the GPU has finished", |tenant| tenant.finished),
    ("tenant_holds", "Launches that were held", |tenant| tenant.holds),
];

const GAUGES: [GaugeRow; 12] = [
    ("tenant_busy", "Whether the GPU has work of it", |tenant| flag(tenant.busy)),
    ("tenant_paused", "Whether it is paused", |tenant| flag(tenant.paused)),
    ("tenant_holding", "Whether a launch is being held", |tenant| flag(tenant.holding)),
    ("tenant_stalled", "Whether its step stands still, so that nobody makes way for it", |tenant| flag(tenant.stalled)),
    ("tenant_strained", "Whether it misses its objectives more often than they allow", |tenant| flag(tenant.strained)),
    (
        "tenant_quarantined",
        "Whether its kernels keep running far longer than predicted, so that it is kept on few SMs",
        |tenant| flag(tenant.quarantined),
    ),
    ("tenant_doubts", "Whether it has published what cannot be", |tenant| flag(tenant.doubts)),
    ("tenant_lane_width", "SMs of the lane that it is bound to", |tenant| tenant.lane_width.into()),
    ("tenant_weight", "Its weight among its equals", |tenant| tenant.weight.into()),
    ("tenant_steps_per_second", "Steps in a second, lately", |tenant| tenant.steps_per_second),
    ("tenant_launches_per_second", "Launches in a second, lately", |tenant| tenant.launches_per_second),
    ("tenant_holds_per_second", "Launches held in a second, lately", |tenant| tenant.holds_per_second),
];

fn register_tenants(registry: &mut Registry, tenants: &[Tenant]) {
    let labels = |tenant: &Tenant| Labels { tenant: tenant.name.clone(), pid: tenant.pid };
    for (name, help, read) in COUNTERS {
        let family = Family::<Labels, Counter>::default();
        for tenant in tenants {
            family.get_or_create(&labels(tenant)).inc_by(read(tenant));
        }
        registry.register(name, help, family);
    }
    for (name, help, read) in GAUGES {
        let family = Family::<Labels, FloatGauge>::default();
        for tenant in tenants {
            family.get_or_create(&labels(tenant)).set(read(tenant));
        }
        registry.register(name, help, family);
    }
    let held = Family::<Labels, FloatCounter>::default();
    let (memory, limit) = (Family::<Labels, FloatGauge>::default(), Family::<Labels, FloatGauge>::default());
    let mps_client = Family::<Labels, FloatGauge>::default();
    let step_time = Family::<QuantileLabels, FloatGauge>::default();
    let info = Family::<InfoLabels, FloatGauge>::default();
    let missed = Family::<ObjectiveLabels, FloatGauge>::default();
    for tenant in tenants {
        let labels = labels(tenant);
        held.get_or_create(&labels).inc_by(nearly(tenant.held_ns) / SECOND_NS);
        memory.get_or_create(&labels).set(nearly(tenant.memory));
        if let Some(bytes) = tenant.memory_limit {
            limit.get_or_create(&labels).set(nearly(bytes));
        }
        if let Some(is_client) = tenant.mps_client {
            mps_client.get_or_create(&labels).set(flag(is_client));
        }
        for (quantile, ns) in [("0.5", tenant.step_p50_ns), ("0.99", tenant.step_p99_ns)] {
            if let Some(ns) = ns {
                let labels = QuantileLabels { tenant: tenant.name.clone(), pid: tenant.pid, quantile };
                step_time.get_or_create(&labels).set(nearly(ns) / SECOND_NS);
            }
        }
        let Missed { p99, ttft, tpot } = tenant.missed;
        for (objective, part) in NAMES.into_iter().zip([p99, ttft, tpot]) {
            if let Some(part) = part {
                let labels = ObjectiveLabels { tenant: tenant.name.clone(), pid: tenant.pid, objective };
                missed.get_or_create(&labels).set(part);
            }
        }
        let labels = InfoLabels {
            tenant: tenant.name.clone(),
            pid: tenant.pid,
            class: tenant.class.to_string(),
            lane: tenant.lane.clone(),
            gpu: tenant.gpu.clone(),
        };
        info.get_or_create(&labels).set(1.0);
    }
    registry.register_with_unit("tenant_held", "How long launches were held", Unit::Seconds, held);
    registry.register_with_unit("tenant_memory", "The GPU's memory that it has", Unit::Bytes, memory);
    registry.register_with_unit("tenant_memory_limit", "The most that it may have", Unit::Bytes, limit);
    registry.register_with_unit("tenant_step", "How long its steps take, lately", Unit::Seconds, step_time);
    registry.register("tenant_missed_ratio", "The part of its steps that missed an objective, lately", missed);
    registry.register("tenant_mps_client", "Whether it is a client of the daemon's MPS", mps_client);
    registry.register("tenant_info", "Its class, lane and GPU", info);
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

#[expect(clippy::cast_precision_loss, reason = "nobody reads a metric to its 16th digit")]
const fn nearly(number: u64) -> f64 {
    number as f64
}
