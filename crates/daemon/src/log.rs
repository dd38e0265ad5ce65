//! The log: structured lines on standard error, whose filter can change while we run.

use crate::config::LogFilter;
use clap::ValueEnum;
use std::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt as lines, reload};

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Changes what is logged.
#[derive(Clone)]
pub struct LogControl(Option<reload::Handle<EnvFilter, Registry>>);

impl LogControl {
    /// Of a log that is somebody else's: nothing is changed.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Puts a filter in force.
    pub fn set(&self, filter: &LogFilter) {
        if let Some(handle) = &self.0 {
            // It fails only if there is no log any more.
            _ = handle.reload(filter.filter());
        }
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("LogControl").field(&self.0.is_some()).finish()
    }
}

/// Starts the process's log.
#[must_use]
pub fn start(format: LogFormat) -> LogControl {
    let (filter, handle) = reload::Layer::new(EnvFilter::new("info"));
    // Nobody reads the log any more: that must not end a daemon, so it is not reported to the same place either.
    let layer = lines::layer().with_writer(std::io::stderr).with_target(false).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
    if started.is_ok() { LogControl(Some(handle)) } else { LogControl::none() }
}
