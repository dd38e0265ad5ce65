//! What of a session's time is measured: nothing at first, and then a stretch for each level of the dial.

use super::arm::{Arm, Way};
use super::flags::Settings;
use super::scenario::{Device, Program};
use detshare_api::Class;
use std::time::Duration;

/// For how long nothing counts at first: clocks rise, and whatever is made at first use is made.
pub(crate) const WARM_UP_SECONDS: u32 = 1;
/// For how much longer nothing counts where tenants run together. What comes first of several levels would otherwise be
/// measured while kernels have no profile yet and the server's rhythm is not known, and look worse than it is.
const LEARNING_SECONDS: u32 = 2;
/// For how long nothing counts after the dial was turned: tenants see it within a millisecond, but what was launched before
/// is still in flight, and who was late is so until the queue is gone.
const SETTLING_SECONDS: u32 = 1;
/// For how long it is written down what tenants launch, of which a small part is shown.
pub(crate) const RECORDED_SECONDS: u32 = 1;
/// For how long requests do not count at first of LLM servers, which have fewer of them.
pub(crate) const LLM_WARM_UP_SECONDS: u32 = 2;

/// For how long a training is measured that runs alone, where others are servers: its speed is known sooner than their tail.
const TRAINING_ALONE_SECONDS: u32 = 10;

/// How the time of a session is divided, in seconds from when its programs begin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule {
    /// For how long nothing counts at first; the dial is where it usually is.
    pub(crate) unmeasured: u32,
    /// How long each stretch is measured.
    seconds: u32,
    /// Where the dial is in each stretch; none is where it usually is.
    pub(crate) levels: Vec<Option<f64>>,
}

impl Schedule {
    /// Of a session of that arm that is measured for so long, in the round with that number, from 1.
    pub(crate) fn of(settings: &Settings, arm: &Arm, round: usize, seconds: u32) -> Self {
        Self::at(settings, arm, settings.levels(arm, round), seconds)
    }

    /// Of a session in which what tenants launch is written down.
    pub(crate) fn recorded(settings: &Settings, arm: &Arm) -> Self {
        let seconds = match settings.scenario.device {
            Device::Gpu => RECORDED_SECONDS,
            // See below.
            Device::Soft => settings.seconds,
        };
        Self::at(settings, arm, vec![None], seconds)
    }

    fn at(settings: &Settings, arm: &Arm, levels: Vec<Option<f64>>, seconds: u32) -> Self {
        let are_tenants_together = matches!(arm.way, Way::DetShare { .. }) && !arm.is_alone;
        let unmeasured = match settings.scenario.device {
            Device::Gpu => WARM_UP_SECONDS + if are_tenants_together { LEARNING_SECONDS } else { 0 },
            // Its programs do a number of steps, which is to be the same as alone: only so can bits be compared.
            Device::Soft if levels == [None] => 0,
            Device::Soft => LEARNING_SECONDS,
        };
        if settings.scenario.has_servers() {
            return Self::of_servers(seconds);
        }
        Self { unmeasured, seconds, levels }
    }

    /// Of a session of that arm with these programs alone.
    pub(crate) fn of_session(
        settings: &Settings,
        arm: &Arm,
        (round, seconds): (usize, u32),
        programs: &[&Program],
    ) -> Self {
        let schedule = Self::of(settings, arm, round, seconds);
        let is_training = programs.iter().all(|program| program.class == Class::BestEffort);
        let most = if settings.scenario.has_servers() && is_training { TRAINING_ALONE_SECONDS } else { u32::MAX };
        Self { seconds: schedule.seconds.min(most), ..schedule }
    }

    /// Where all requests are those of a trace: which of them count is known by their number, whenever they come.
    pub(crate) fn of_servers(seconds: u32) -> Self {
        Self { unmeasured: 0, seconds: seconds + LLM_WARM_UP_SECONDS, levels: vec![None] }
    }

    /// When the stretch with that number begins, and the dial is turned for it; for the one after the last, when all is over.
    pub(crate) fn begin(&self, number: usize) -> Duration {
        let before: Duration = (0..number.min(self.levels.len())).map(|one| self.settling(one) + self.stretch()).sum();
        Duration::from_secs(self.unmeasured.into()) + before
    }

    /// How long nothing counts when it has begun.
    pub(crate) fn settling(&self, number: usize) -> Duration {
        let is_turned = self.levels.get(number).is_some_and(Option::is_some);
        Duration::from_secs(if is_turned { SETTLING_SECONDS.into() } else { 0 })
    }

    /// How long it is measured.
    pub(crate) fn stretch(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// When all of it is over.
    pub(crate) fn end(&self) -> Duration {
        self.begin(self.levels.len())
    }

    /// How long programs have to do that begin to count when the others do.
    pub(crate) fn counted(&self) -> u32 {
        u32::try_from(self.end().as_secs()).unwrap_or(u32::MAX) - self.unmeasured
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::tests::resolved;
    use super::*;

    fn scheduled(line: &str, arm: &str, round: usize) -> Schedule {
        let settings = resolved(line).unwrap();
        let arm = settings.arms.iter().find(|one| one.name == arm).unwrap();
        Schedule::of(&settings, arm, round, settings.seconds)
    }

    #[test]
    fn what_tenants_learn_from_is_not_measured() {
        let seconds = Duration::from_secs;
        let alone = scheduled("small --seconds 6", "alone", 1);
        assert_eq!((alone.begin(0), alone.settling(0), alone.end()), (seconds(1), seconds(0), seconds(7)));
        let policy = scheduled("small --arms slo-aware --seconds 6", "slo-aware", 1);
        assert_eq!((policy.begin(0), policy.settling(0), policy.end()), (seconds(3), seconds(0), seconds(9)));
        assert_eq!(policy.counted(), 6, "a server's requests in that time");
    }

    #[test]
    fn a_training_beside_servers_is_measured_alone_for_a_short_time() {
        let settings = resolved("llm-train --seconds 60").unwrap();
        let arm = settings.arms.iter().find(|arm| arm.is_alone).unwrap();
        let end = |programs: &[&Program]| {
            Schedule::of_session(&settings, arm, (1, settings.seconds), programs).end().as_secs()
        };
        let [chat, train] = settings.scenario.programs else { panic!("two programs") };
        assert_eq!((end(&[chat]), end(&[train]), end(&[chat, train])), (62, 10, 62));
        let small = resolved("small --seconds 60").unwrap();
        let alone = Schedule::of_session(&small, &small.arms[0], (1, small.seconds), &[&small.scenario.programs[1]]);
        assert_eq!(alone.end().as_secs(), 61, "both are measured for as long otherwise");
    }

    #[test]
    fn the_first_level_is_one_that_the_dial_is_turned_to() {
        let seconds = Duration::from_secs;
        let dial = scheduled("small --seconds 6 --aggressiveness 0,1", "slo-aware", 2);
        assert_eq!(dial.levels, [Some(0.0), Some(1.0)]);
        assert_eq!((dial.unmeasured, dial.begin(0), dial.settling(0)), (3, seconds(3), seconds(1)));
        assert_eq!((dial.begin(1), dial.settling(1), dial.end()), (seconds(10), seconds(1), seconds(17)));
        assert_eq!(dial.counted(), 14);
    }

    #[test]
    fn what_is_written_down_is_short_and_the_dial_is_where_it_usually_is() {
        let settings = resolved("small --seconds 6 --aggressiveness 0,1").unwrap();
        let arm = settings.arms.iter().find(|arm| arm.has_dial()).unwrap();
        let recorded = Schedule::recorded(&settings, arm);
        assert_eq!((recorded.levels.as_slice(), recorded.end()), (&[None][..], Duration::from_secs(4)));
    }

    #[test]
    fn on_the_software_gpu_arms_do_the_same_number_of_steps() {
        for arm in ["alone", "slo-aware"] {
            assert_eq!(scheduled("soft --seconds 5", arm, 1).end(), Duration::from_secs(5), "{arm}");
        }
    }
}
