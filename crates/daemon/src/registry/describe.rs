//! A tenant as the interface has it: what it does, and why its launches went as they did.

use super::Present;
use crate::entry::from_board;
use detshare_api::{DecisionMade, Missed, Objective, Tenant};
use detshare_board::{Noted, TenantState, clock};
use detshare_policy::Reason;
use detshare_policy::phase::Phase;

impl Present {
    /// Why its launches went as they did; `name_of` knows the tenants by slot.
    pub(crate) fn explain(&self, name_of: impl Fn(usize) -> Option<String>) -> Vec<DecisionMade> {
        let (now, widths) = (clock::now(), self.view.widths());
        let about = |number: u8| Reason::from_number(number).map_or("unknown", Reason::about).to_string();
        let describe = |noted: Noted| DecisionMade {
            ago_ns: now.saturating_sub(noted.at_ns),
            kernel: self.view.kernel(noted.kernel).map(|kernel| kernel.name),
            lane_width: widths.get(usize::from(noted.lane)).copied().unwrap_or(0),
            reason: about(noted.reason),
            held_ns: noted.held_ns,
            held_for: (noted.held_for != 0).then(|| about(noted.held_for)),
            because_of: name_of(usize::from(noted.because_of)),
            predicted_ns: (noted.predicted_ns != 0).then_some(noted.predicted_ns),
            measured_ns: (noted.measured_ns != 0).then_some(noted.measured_ns),
        };
        self.view.decisions().into_iter().map(describe).collect()
    }

    /// As the interface has it.
    pub(crate) fn describe(&self) -> Tenant {
        let now = clock::now();
        let state = self.view.read(now);
        let rates = self.history.rates(now, &state, &self.view);
        let phase = Phase::from_number(state.phase);
        // Nobody waits for the tokens of others.
        let is_served = self.entry.class == detshare_board::Class::Latency;
        let detshare_board::Objective { p99_ns, ttft_ns, tpot_ns } = self.entry.objective;
        Tenant {
            name: self.name.clone(),
            pid: self.pid(),
            slot: self.claim.slot(),
            class: from_board(self.entry.class),
            paused: self.entry.paused,
            busy: state.step.is_busy(),
            lane: lane_name(&state, self.hello.width),
            lane_width: state.lane_width,
            step: state.step.number().into(),
            steps_per_second: rates.steps,
            step_p50_ns: rates.p50_ns,
            step_p99_ns: rates.p99_ns,
            launches: state.launched,
            launches_per_second: rates.launches,
            finished: state.finished,
            holding: state.holding_since.is_some(),
            holds: state.holds,
            holds_per_second: rates.holds,
            held_ns: state.held_ns,
            memory: state.memory,
            memory_limit: self.entry.limits.memory,
            weight: self.entry.weight,
            objective: Objective { p99_ns, ttft_ns, tpot_ns },
            gpu: self.hello.gpu.clone(),
            width: self.hello.width,
            mps_client: self.mps_client,
            joined: humantime::format_rfc3339_millis(self.joined).to_string(),
            command: self.command.clone(),
            phase: (is_served && phase != Phase::Unknown).then(|| phase.name().to_string()),
            pace_ns: (is_served && state.pace_ns != 0).then_some(state.pace_ns),
            quarantined: self.view.is_quarantined(),
            missed: Missed { p99: rates.missed[0], ttft: rates.missed[1], tpot: rates.missed[2] },
            strained: state.strained,
            doubts: self.doubts || state.doubts.any(),
        }
    }
}

/// Lanes are numbered: 0 is `full`, then come front and rest of one split after the other. A split is called by the width
/// of its front.
fn lane_name(state: &TenantState, gpu_width: u32) -> String {
    let width = state.lane_width;
    match (state.lane, width) {
        (0, _) => "full".to_string(),
        (lane, 0) => if lane % 2 == 1 { "front" } else { "rest" }.to_string(),
        (lane, _) if lane % 2 == 1 => format!("front{width}"),
        _ => format!("rest{}", gpu_width.saturating_sub(width)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detshare_board::TenantView;

    #[test]
    fn lanes_are_called_by_their_split() {
        let tenant = detshare_board::Tenant::create(detshare_board::Class::Latency).unwrap();
        let view = TenantView::map(tenant.file()).unwrap();
        let name = |lane, width| {
            tenant.set_lane(lane, width);
            lane_name(&view.read(0), 132)
        };
        assert_eq!([name(0, 132), name(1, 16), name(2, 116)], ["full", "front16", "rest16"]);
        assert_eq!([name(0, 0), name(3, 0), name(4, 0)], ["full", "front", "rest"]);
    }
}
