//! Which version of a kernel a best-effort launch runs: as it is, in slices, or so that it gives way between two blocks.
//!
//! What a version costs is only known once it has run. So those that may be taken are tried on a few of the program's own
//! launches, in turn; nothing ever runs twice. Smaller slices and fewer persistent blocks give way sooner and take longer: what may give way
//! in time by what the original takes is tried first, from the largest on, until one does; the others only if none does, and until
//! two are much slower than the original. Then the fastest is taken that gives way in time, and if none does, the one
//! that gives way soonest. None is taken that is much slower than the original: giving way is not worth everything.
//!
//! A kernel that is short enough by itself is left as it is, and nothing is tried.

/// Within what time a kernel is to give way, if nobody says otherwise.
pub const TURNAROUND_NS: u64 = 32_000;
/// How much longer than the original a version may take, in hundredths.
pub const MOST_SLOWDOWN: u64 = 20;
/// How often each version is measured before it is judged.
pub const TRIES: u32 = 3;
/// One that took so many times as long as the original is not tried again: however slow a first launch is, it is not that.
pub const HOPELESS: u64 = 3;
/// Slices that are in the GPU's queue at once, so that it never waits for the host.
pub const SLICES_IN_FLIGHT: u64 = 2;
/// In what time half of it is forgotten by how much a version gave way later than its blocks say. Something happened once to one
/// that was late, or it is always late: the first is chosen again within a minute or so, the second is late once in as long.
pub const HALF_IS_FORGOTTEN_NS: u64 = 10_000_000_000;

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// As the program wrote it.
    Original,
    /// In slices of as many blocks as the SMs hold at once, times this.
    Slices {
        /// How many times.
        waves: u32,
    },
    /// By persistent blocks that take the kernel's blocks one after the other and can stop in between.
    Preemptible {
        /// How many there are on each SM, at most.
        blocks_per_sm: u32,
    },
}

/// How many versions there are.
pub const COUNT: usize = 15;

/// All of them; the first is the original. Of each kind the largest come first.
pub const VERSIONS: [Version; COUNT] = [
    Version::Original,
    Version::Slices { waves: 8 },
    Version::Slices { waves: 4 },
    Version::Slices { waves: 2 },
    Version::Slices { waves: 1 },
    Version::Preemptible { blocks_per_sm: 32 },
    Version::Preemptible { blocks_per_sm: 24 },
    Version::Preemptible { blocks_per_sm: 16 },
    Version::Preemptible { blocks_per_sm: 12 },
    Version::Preemptible { blocks_per_sm: 8 },
    Version::Preemptible { blocks_per_sm: 6 },
    Version::Preemptible { blocks_per_sm: 4 },
    Version::Preemptible { blocks_per_sm: 3 },
    Version::Preemptible { blocks_per_sm: 2 },
    Version::Preemptible { blocks_per_sm: 1 },
];

impl Version {
    /// By what a version is kept: it is the same one whatever others there are.
    #[must_use]
    pub const fn identity(self) -> u64 {
        match self {
            Self::Original => 0,
            Self::Slices { waves } => 1 << 32 | waves as u64,
            Self::Preemptible { blocks_per_sm } => 2 << 32 | blocks_per_sm as u64,
        }
    }

    /// Whether both are slices, or both persistent blocks.
    fn is_like(self, other: Self) -> bool {
        core::mem::discriminant(&self) == core::mem::discriminant(&other)
    }
}

/// The number of the original in [`VERSIONS`].
pub const ORIGINAL: usize = 0;

/// What is to run, and what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Blocks of the grid.
    pub blocks: u64,
    /// SMs that it runs on.
    pub sms: u32,
    /// Blocks of the sliced version that an SM holds at once; 0 if there is none, or none fits.
    pub sliced: u32,
    /// The same of the preemptible one.
    pub preemptible: u32,
}

impl Extent {
    /// Blocks of one launch of this version: of a slice, or persistent ones.
    #[must_use]
    pub fn at_once(&self, version: Version) -> u64 {
        let wave = |blocks_per_sm: u32| u64::from(blocks_per_sm) * u64::from(self.sms);
        let most = match version {
            Version::Original => return self.blocks,
            Version::Slices { waves } => wave(self.sliced).saturating_mul(waves.into()),
            Version::Preemptible { blocks_per_sm } => wave(blocks_per_sm.min(self.preemptible)),
        };
        most.clamp(1, self.blocks.max(1))
    }

    /// Whether the version can do what it is for: more than one slice, or persistent blocks that each take several.
    /// Of those with more persistent blocks than an SM holds, the last counts, and holds as many as there can be.
    #[must_use]
    pub fn applies(&self, version: Version) -> bool {
        match version {
            Version::Original => true,
            Version::Slices { .. } => self.sliced != 0 && self.at_once(version) < self.blocks,
            Version::Preemptible { blocks_per_sm } => {
                let fewer = VERSIONS.iter().filter_map(|other| match other {
                    Version::Preemptible { blocks_per_sm: other } => Some(*other).filter(|it| *it < blocks_per_sm),
                    _ => None,
                });
                let is_new = fewer.max().unwrap_or(0) < self.preemptible;
                is_new && self.at_once(version) < self.blocks
            }
        }
    }

    fn has_versions(&self) -> bool {
        VERSIONS[1..].iter().any(|version| self.applies(*version))
    }
}

/// What is known of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// What all blocks together take, undisturbed; 0 is unknown.
    pub took_ns: u64,
    /// How often that was measured.
    pub times: u32,
    /// How long it took to give way; 0 where it never had to,
    pub gave_way_ns: u64,
    /// and when that was.
    pub gave_way_at_ns: u64,
}

impl Measured {
    /// It took so long, undisturbed. At first the shortest counts, for the first launches are slow in many ways; later it
    /// is a mean that follows what changes.
    pub fn note(&mut self, took_ns: u64) {
        let took = took_ns.max(1);
        self.took_ns = match self.took_ns {
            0 => took,
            before if self.times < TRIES => before.min(took),
            before => {
                // What took far longer counts as a little longer: others may have caused it.
                let took = took.min(before.saturating_add(before / 2));
                if took > before { before + (took - before) / 8 } else { before - (before - took) / 8 }
            }
        };
        self.times = self.times.saturating_add(1);
    }

    /// It gave way so late, at that time. The longest counts, less with each that is shorter, and with time ([`turnaround_ns`]).
    pub fn note_giving_way(&mut self, ns: u64, now_ns: u64) {
        self.gave_way_ns = ns.max(self.gave_way_ns - self.gave_way_ns / 16).max(1);
        self.gave_way_at_ns = now_ns;
    }

    const fn is_judged(&self) -> bool {
        self.times >= TRIES && self.took_ns != 0
    }

    const fn is_hopeless(&self, original_ns: u64) -> bool {
        self.times > 0 && self.took_ns / HOPELESS >= original_ns
    }
}

/// What is known of persistent blocks that have ended, in nanoseconds of the host's clock but for what they ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When they were put into their stream.
    pub put_in_ns: u64,
    /// How long they ran, by the GPU's clock.
    pub ran_ns: u64,
    /// When a thread knew that they were over.
    pub noticed_ns: u64,
}

impl Ended {
    /// What was lost on the way: until they began, and from their end until somebody noticed.
    #[must_use]
    pub const fn lost_ns(&self) -> u64 {
        self.noticed_ns.saturating_sub(self.put_in_ns).saturating_sub(self.ran_ns)
    }

    /// When they were over, given the least that was ever lost. A thread that looks late, because others have its core, says nothing
    /// of them.
    #[must_use]
    pub fn over_ns(&self, least_lost_ns: u64) -> u64 {
        let ran_until = self.put_in_ns.saturating_add(self.ran_ns);
        ran_until.saturating_add(least_lost_ns).min(self.noticed_ns)
    }
}

/// Why a version was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// There is no other.
    Only,
    /// The original is not measured yet.
    Unmeasured,
    /// The original is short enough by itself.
    Short,
    /// It is being measured.
    Trying,
    /// Of those that give way in time it is the fastest.
    InTime,
    /// None gives way in time, and this one does so soonest.
    Soonest,
    /// All others are too slow, or give way no sooner.
    Slow,
}

impl Because {
    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Only => "there is no other version for this grid",
            Self::Unmeasured => "the original is measured first",
            Self::Short => "the original is short enough",
            Self::Trying => "versions are being measured",
            Self::InTime => "the fastest that gives way in time",
            Self::Soonest => "none gives way in time; this one does so soonest",
            Self::Slow => "the others are over 20 % slower, or give way no sooner",
        }
    }
}

/// How long it takes until the version gives way, as is known at that time: as measured, or by how long its blocks last. What was
/// measured beyond that is forgotten bit by bit: a version that is not chosen any more is not measured any more either. 0 is unknown.
#[must_use]
pub fn turnaround_ns(extent: &Extent, version: Version, measured: &Measured, now_ns: u64) -> u64 {
    let by_blocks = by_blocks_ns(extent, version, measured);
    if measured.gave_way_ns <= by_blocks {
        return if measured.gave_way_ns == 0 { by_blocks } else { measured.gave_way_ns };
    }
    let halves = now_ns.saturating_sub(measured.gave_way_at_ns) / HALF_IS_FORGOTTEN_NS;
    let beyond = measured.gave_way_ns - by_blocks;
    by_blocks + u32::try_from(halves).ok().and_then(|halves| beyond.checked_shr(halves)).unwrap_or(0)
}

fn by_blocks_ns(extent: &Extent, version: Version, measured: &Measured) -> u64 {
    let part = match version {
        Version::Original => return measured.took_ns,
        Version::Slices { .. } => extent.at_once(version).saturating_mul(SLICES_IN_FLIGHT).min(extent.blocks),
        Version::Preemptible { .. } => extent.at_once(version),
    };
    let ns = u128::from(measured.took_ns) * u128::from(part) / u128::from(extent.blocks.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// The version for a launch at that time, as its number in [`VERSIONS`].
#[must_use]
pub fn choose(extent: &Extent, measured: &[Measured; COUNT], limit_ns: u64, now_ns: u64) -> (usize, Because) {
    if !extent.has_versions() {
        return (ORIGINAL, Because::Only);
    }
    let original = &measured[ORIGINAL];
    if !original.is_judged() {
        return (ORIGINAL, Because::Unmeasured);
    }
    if original.took_ns <= limit_ns {
        return (ORIGINAL, Because::Short);
    }
    let slowest = original.took_ns.saturating_add(original.took_ns / 100 * MOST_SLOWDOWN);
    let applying = || (0..COUNT).filter(|number| extent.applies(VERSIONS[*number]));
    let is_known = |number: usize| measured[number].is_judged() || measured[number].is_hopeless(original.took_ns);
    let is_good = |number: usize| is_known(number) && measured[number].took_ns <= slowest;
    let turnaround = |number: usize| turnaround_ns(extent, VERSIONS[number], &measured[number], now_ns);
    let is_in_time = |number: usize| is_good(number) && turnaround(number) <= limit_ns;
    // Of an untried one: as if it took no longer than the original.
    let may_be_in_time = |number: usize| by_blocks_ns(extent, VERSIONS[number], original) <= limit_ns;
    let larger = |number: usize| (1..number).filter(move |other| VERSIONS[*other].is_like(VERSIONS[number]));
    // What is smaller takes longer. But what was measured of one version, or by one launch, may be somebody else's doing.
    let is_too_slow = |number: &usize| measured[*number].is_judged() && !is_good(*number);
    let is_untried = |number: usize| !is_known(number) && larger(number).filter(is_too_slow).count() < 2;
    let untried = || applying().filter(|number| is_untried(*number));
    let next = untried().find(|number| may_be_in_time(*number) && !larger(*number).any(is_in_time));
    let is_any_in_time = applying().any(|number| number != ORIGINAL && is_in_time(number));
    if let Some(number) = next.or_else(|| if is_any_in_time { None } else { untried().next() }) {
        return (number, Because::Trying);
    }
    let good = || applying().filter(|number| is_good(*number));
    let in_time = good().filter(|number| is_in_time(*number)).min_by_key(|number| measured[*number].took_ns);
    if let Some(number) = in_time {
        return (number, Because::InTime);
    }
    // The first of equals: the original, if no other gives way sooner.
    let soonest = good().min_by_key(|number| turnaround(*number)).unwrap_or(ORIGINAL);
    (soonest, if soonest == ORIGINAL { Because::Slow } else { Because::Soonest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXTENT: Extent = Extent { blocks: 100_000, sms: 132, sliced: 4, preemptible: 4 };
    const MS: u64 = 1_000_000;

    /// As if each version had been measured often enough to take that long.
    fn all(took: impl Fn(Version) -> u64) -> [Measured; COUNT] {
        VERSIONS.map(|version| Measured { took_ns: took(version), times: TRIES, ..Measured::default() })
    }

    #[test]
    fn the_original_is_measured_first_and_kept_if_it_is_short() {
        let mut measured = [Measured::default(); COUNT];
        for _ in 0..TRIES {
            assert_eq!(choose(&EXTENT, &measured, TURNAROUND_NS, 0), (ORIGINAL, Because::Unmeasured));
            measured[ORIGINAL].note(20_000);
        }
        assert_eq!(choose(&EXTENT, &measured, TURNAROUND_NS, 0), (ORIGINAL, Because::Short));
    }

    #[test]
    fn what_is_far_too_slow_is_tried_once() {
        let mut measured = [Measured::default(); COUNT];
        let mut tried = [0; COUNT];
        loop {
            let (number, because) = choose(&EXTENT, &measured, TURNAROUND_NS, 0);
            if ![Because::Unmeasured, Because::Trying].contains(&because) {
                assert_eq!(VERSIONS[number], Version::Slices { waves: 1 }, "{because:?}");
                break;
            }
            tried[number] += 1;
            let is_slow = matches!(VERSIONS[number], Version::Preemptible { .. });
            measured[number].note(if is_slow { 40 * MS } else { 4 * MS });
        }
        let expected = |version| match version {
            Version::Preemptible { .. } => u32::from(EXTENT.applies(version)),
            Version::Original | Version::Slices { .. } => TRIES,
        };
        assert_eq!(tried, VERSIONS.map(expected));
    }

    /// Those that are tried until something is taken, of a kernel whose versions are all so much slower, in hundredths.
    fn tried(extent: &Extent, original_ns: u64, slower: impl Fn(Version) -> u64) -> (Vec<Version>, (usize, Because)) {
        let (mut measured, mut tried) = ([Measured::default(); COUNT], Vec::new());
        loop {
            let (number, because) = choose(extent, &measured, TURNAROUND_NS, 0);
            if ![Because::Unmeasured, Because::Trying].contains(&because) {
                return (tried, (number, because));
            }
            if because == Because::Trying && !tried.contains(&VERSIONS[number]) {
                tried.push(VERSIONS[number]);
            }
            let more = if number == ORIGINAL { 0 } else { slower(VERSIONS[number]) };
            measured[number].note(original_ns + original_ns / 100 * more);
        }
    }

    /// 40 ms of a million and a half small blocks, eight of which an SM holds: the first version gives way in 30 µs, and no other
    /// is tried.
    #[test]
    fn trying_ends_with_the_first_of_a_kind_that_gives_way_in_time() {
        let extent = Extent { blocks: 1_400_000, sms: 132, sliced: 8, preemptible: 8 };
        let eight = Version::Preemptible { blocks_per_sm: 8 };
        let (all, (number, because)) = tried(&extent, 40 * MS, |_| 3);
        assert_eq!((all, VERSIONS[number], because), (vec![eight], eight, Because::InTime));
        // As they are 8 % slower, it is 32.6 µs, and with six of them on an SM less.
        let six = Version::Preemptible { blocks_per_sm: 6 };
        let (all, (number, because)) = tried(&extent, 40 * MS, |_| 8);
        assert_eq!((all, VERSIONS[number], because), (vec![eight, six], six, Because::InTime));
    }

    /// Blocks of a tenth of a millisecond: what might give way in time is far too slow, and the others are tried until one is.
    #[test]
    fn where_none_may_give_way_in_time_trying_ends_when_two_are_too_slow() {
        let extent = Extent { blocks: 65_536, sms: 132, sliced: 8, preemptible: 8 };
        let (all, (number, because)) = tried(&extent, 9 * MS, |version| match version {
            Version::Preemptible { blocks_per_sm: 8 } => 11,
            Version::Preemptible { .. } => 40,
            _ => 17,
        });
        let persistent: Vec<_> = all.into_iter().filter(|it| matches!(it, Version::Preemptible { .. })).collect();
        assert_eq!(persistent, [1, 8, 6, 4].map(|blocks_per_sm| Version::Preemptible { blocks_per_sm }));
        assert_eq!((VERSIONS[number], because), (Version::Preemptible { blocks_per_sm: 8 }, Because::Soonest));
    }

    #[test]
    fn the_fastest_that_gives_way_in_time_is_taken() {
        let measured = all(|version| match version {
            Version::Original => 4 * MS,
            // Half a block for each of 528 in 100000: 24 µs.
            Version::Preemptible { blocks_per_sm: 4 } => 4_100_000,
            Version::Preemptible { .. } => 4_300_000,
            Version::Slices { .. } => 4_050_000,
        });
        let (number, because) = choose(&EXTENT, &measured, TURNAROUND_NS, 0);
        assert_eq!((VERSIONS[number], because), (Version::Preemptible { blocks_per_sm: 4 }, Because::InTime));
    }

    #[test]
    fn what_gave_way_too_late_is_given_up_for_another() {
        let mut measured = all(|version| if version == Version::Original { 4 * MS } else { 4_100_000 });
        let (before, _) = choose(&EXTENT, &measured, TURNAROUND_NS, 0);
        measured[before].note_giving_way(500_000, 7);
        let (after, _) = choose(&EXTENT, &measured, TURNAROUND_NS, 8);
        assert_ne!(before, after);
    }

    #[test]
    fn what_gave_way_too_late_once_is_chosen_again_later() {
        let mut measured = all(|version| if version == Version::Original { 4 * MS } else { 4_100_000 });
        let at = |now_ns, measured: &_| choose(&EXTENT, measured, TURNAROUND_NS, now_ns);
        let (before, _) = at(0, &measured);
        measured[before].note_giving_way(2 * MS, 0);
        assert_ne!(at(HALF_IS_FORGOTTEN_NS, &measured).0, before, "half of it is still far too late");
        assert_eq!(at(10 * HALF_IS_FORGOTTEN_NS, &measured), (before, Because::InTime));
        // Late again, and it is not chosen again.
        measured[before].note_giving_way(2 * MS, 10 * HALF_IS_FORGOTTEN_NS);
        assert_ne!(at(11 * HALF_IS_FORGOTTEN_NS, &measured).0, before);
        // However long ago that was.
        assert_eq!(at(u64::MAX, &measured), (before, Because::InTime));
    }

    #[test]
    fn a_thread_that_looks_late_does_not_make_a_version_late() {
        let at_once = Ended { put_in_ns: 1_000, ran_ns: 50_000, noticed_ns: 63_000 };
        assert_eq!((at_once.lost_ns(), at_once.over_ns(at_once.lost_ns())), (12_000, 63_000));
        let late = Ended { noticed_ns: 9_000_000, ..at_once };
        assert_eq!(late.over_ns(at_once.lost_ns()), 63_000);
        // It ran for longer than it was away: clocks differ a little.
        let odd = Ended { ran_ns: 100_000, ..at_once };
        assert_eq!((odd.lost_ns(), odd.over_ns(12_000)), (0, 63_000));
    }

    #[test]
    fn what_gave_way_sooner_than_its_blocks_say_is_not_forgotten() {
        let mut measured = Measured { took_ns: 50 * MS, times: TRIES, ..Measured::default() };
        measured.note_giving_way(20_000, 0);
        let version = Version::Preemptible { blocks_per_sm: 4 };
        assert_eq!(turnaround_ns(&EXTENT, version, &measured, u64::MAX), 20_000);
    }

    #[test]
    fn nothing_that_is_much_slower_is_taken() {
        let slow = all(|version| if version == Version::Original { 10 * MS } else { 12_000_001 });
        assert_eq!(choose(&EXTENT, &slow, TURNAROUND_NS, 0), (ORIGINAL, Because::Slow));
        let just = all(|version| if version == Version::Original { 10 * MS } else { 12 * MS });
        assert_ne!(choose(&EXTENT, &just, TURNAROUND_NS, 0).0, ORIGINAL);
    }

    #[test]
    fn where_none_gives_way_in_time_the_soonest_is_taken() {
        let extent = Extent { blocks: 1_056, ..EXTENT };
        let measured = all(|_| 50 * MS);
        let (number, because) = choose(&extent, &measured, TURNAROUND_NS, 0);
        assert_eq!((VERSIONS[number], because), (Version::Preemptible { blocks_per_sm: 1 }, Because::Soonest));
    }

    #[test]
    fn a_grid_that_is_resident_at_once_has_no_version() {
        let extent = Extent { blocks: 100, ..EXTENT };
        assert_eq!(choose(&extent, &all(|_| MS), TURNAROUND_NS, 0), (ORIGINAL, Because::Only));
    }

    #[test]
    fn as_many_persistent_blocks_as_an_sm_holds_are_tried_once() {
        let of = |sliced, preemptible| {
            let extent = Extent { sliced, preemptible, ..EXTENT };
            let applying = VERSIONS.iter().filter(|version| extent.applies(**version));
            applying.map(|version| extent.at_once(*version)).skip(1).collect::<Vec<_>>()
        };
        assert_eq!(of(3, 3), [396 * 8, 396 * 4, 396 * 2, 396, 396, 264, 132]);
        assert_eq!(of(4, 5), [528 * 8, 528 * 4, 528 * 2, 528, 660, 528, 396, 264, 132], "each has its own");
        assert_eq!(of(0, 1), [132]);
        assert_eq!(of(0, 0), [], "none fits");
    }

    fn extents() -> impl Strategy<Value = Extent> {
        (0..u64::from(u32::MAX), 0..200_u32, 0..40_u32, 0..40_u32)
            .prop_map(|(blocks, sms, sliced, preemptible)| Extent { blocks, sms, sliced, preemptible })
    }

    proptest! {
        /// Whatever the launches take: trying ends, and what is chosen then can run and is not much slower.
        #[test]
        fn trying_ends_with_something_that_applies(
            extent in extents(), took in prop::array::uniform15(1..u64::MAX / 2), gave_way in prop::array::uniform15(0..u64::MAX),
            limit in 1..u64::MAX,
        ) {
            let mut measured = [Measured::default(); COUNT];
            for number in 0..COUNT {
                measured[number].gave_way_ns = gave_way[number];
            }
            let mut launches = 0;
            let (number, because) = loop {
                let (number, because) = choose(&extent, &measured, limit, 0);
                prop_assert!(extent.applies(VERSIONS[number]));
                prop_assert!((1..=extent.blocks.max(1)).contains(&extent.at_once(VERSIONS[number])) || number == ORIGINAL);
                if !matches!(because, Because::Trying | Because::Unmeasured) {
                    break (number, because);
                }
                measured[number].note(took[number]);
                launches += 1;
                prop_assert!(launches <= COUNT * TRIES as usize);
            };
            if number != ORIGINAL {
                prop_assert!(took[number] <= took[ORIGINAL] + took[ORIGINAL] / 100 * MOST_SLOWDOWN);
                prop_assert!(took[ORIGINAL] > limit);
            }
            if because == Because::InTime {
                prop_assert!(turnaround_ns(&extent, VERSIONS[number], &measured[number], 0) <= limit);
            }
        }

        /// A mean stays within what was measured.
        #[test]
        fn a_mean_lies_between_what_was_measured(took in prop::collection::vec(1..u64::MAX / 4, 1..40)) {
            let mut measured = Measured::default();
            took.iter().for_each(|ns| measured.note(*ns));
            let (least, most) = (took.iter().min().unwrap(), took.iter().max().unwrap());
            prop_assert!((*least..=*most).contains(&measured.took_ns));
        }
    }
}
