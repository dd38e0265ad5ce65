//! What is on the screen: who is there, who is chosen, in which order. No terminal here.

use super::feed::News;
use super::history::History;
use crate::quantity;
use detshare_api::{Class, Status, Tenant, TenantPatch};
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Instant;

/// By what the tenants are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    Steps,
    Tail,
    Launches,
    Holds,
    Memory,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Name => Self::Steps,
            Self::Steps => Self::Tail,
            Self::Tail => Self::Launches,
            Self::Launches => Self::Holds,
            Self::Holds => Self::Memory,
            Self::Memory => Self::Name,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Steps => "steps/s",
            Self::Tail => "p99",
            Self::Launches => "launches/s",
            Self::Holds => "holds/s",
            Self::Memory => "memory",
        }
    }

    /// The largest first, and names as in a book.
    fn compare(self, one: &Tenant, other: &Tenant) -> Ordering {
        let by_number = match self {
            Self::Name => Ordering::Equal,
            Self::Steps => other.steps_per_second.total_cmp(&one.steps_per_second),
            Self::Tail => other.step_p99_ns.cmp(&one.step_p99_ns),
            Self::Launches => other.launches_per_second.total_cmp(&one.launches_per_second),
            Self::Holds => other.holds_per_second.total_cmp(&one.holds_per_second),
            Self::Memory => other.memory.cmp(&one.memory),
        };
        by_number.then_with(|| one.name.cmp(&other.name)).then_with(|| one.pid.cmp(&other.pid))
    }
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Change { pid: u32, patch: TenantPatch },
}

#[derive(Debug, Default)]
pub(super) struct Screen {
    /// As it was when the daemon last answered.
    pub(super) status: Option<Status>,
    /// Sorted.
    pub(super) tenants: Vec<Tenant>,
    histories: HashMap<u32, History>,
    pub(super) sort: Sort,
    /// By its process, so that it stays chosen when the order changes.
    chosen: Option<u32>,
    /// Why nobody answers.
    pub(super) gone: Option<String>,
    /// What came of the last change.
    pub(super) said: Option<String>,
}

impl Screen {
    pub(super) fn take(&mut self, news: News, now: Instant) {
        match news {
            News::Gone(reason) => self.gone = Some(reason),
            News::Said(said) => self.said = Some(said),
            News::Seen { status, tenants } => {
                self.gone = None;
                self.status = Some(*status);
                self.tenants = tenants;
                self.histories.retain(|pid, _| self.tenants.iter().any(|tenant| tenant.pid == *pid));
                for tenant in &self.tenants {
                    // Who has no steps shows its launches.
                    let done = if tenant.step > 0 { tenant.step } else { tenant.launches };
                    self.histories.entry(tenant.pid).or_default().add(now, quantity::approximate(done));
                }
                self.order();
            }
        }
    }

    fn order(&mut self) {
        self.tenants.sort_by(|one, other| self.sort.compare(one, other));
        if self.chosen().is_none() {
            self.chosen = self.tenants.first().map(|tenant| tenant.pid);
        }
    }

    /// The chosen one's row.
    pub(super) fn chosen(&self) -> Option<usize> {
        self.tenants.iter().position(|tenant| Some(tenant.pid) == self.chosen)
    }

    pub(super) fn bars(&self, tenant: &Tenant, width: usize) -> String {
        self.histories.get(&tenant.pid).map_or_else(String::new, |history| history.bars(width))
    }

    pub(super) fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> Action {
        self.said = None;
        match key {
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Action::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.choose(|row| row.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(|row| row + 1),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.order();
                Action::Nothing
            }
            KeyCode::Char('p') => {
                self.change(|tenant| TenantPatch { paused: Some(!tenant.paused), ..Default::default() })
            }
            KeyCode::Char('c') => self.change(|tenant| {
                let class = match tenant.class {
                    Class::Latency => Class::BestEffort,
                    Class::BestEffort => Class::Latency,
                };
                TenantPatch { class: Some(class), ..Default::default() }
            }),
            _ => Action::Nothing,
        }
    }

    fn choose(&mut self, next: impl Fn(usize) -> usize) -> Action {
        let row = self.chosen().map_or(0, next).min(self.tenants.len().saturating_sub(1));
        self.chosen = self.tenants.get(row).map(|tenant| tenant.pid);
        Action::Nothing
    }

    fn change(&self, patch: impl Fn(&Tenant) -> TenantPatch) -> Action {
        // Nobody is there to change it.
        if self.gone.is_some() {
            return Action::Nothing;
        }
        let tenant = self.chosen().and_then(|row| self.tenants.get(row));
        tenant.map_or(Action::Nothing, |tenant| Action::Change { pid: tenant.pid, patch: patch(tenant) })
    }
}
