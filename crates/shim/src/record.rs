//! What a tenant launched and when, where `DETSHARE_RECORD` names a file: what the simulator is fed with, and what tells
//! afterwards why a step was late.
//!
//! One JSON object a line, written when the process ends: the process with its lanes, every kernel and graph with what it
//! takes on each lane, then each launch and each step in the order of their times. `detshare record` reads it.

use crate::coroutine::Coroutine;
use crate::hot::HOT;
use crate::kernel::Profile;
use crate::settings;
use crate::stats::{file_for_this_process, json, write_whole};
use crate::{coroutine, lane, log};
use core::fmt::Write;
use core::sync::atomic::Ordering;
use detshare_policy::phase::Phase;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Further ones are not written down.
const MOST: usize = 1 << 20;

/// One launch, as it was decided.
pub(crate) struct Launched {
    pub(crate) at_ns: u64,
    pub(crate) profile: &'static Profile,
    pub(crate) stream: usize,
    pub(crate) lane: u8,
    pub(crate) reason: u8,
    pub(crate) held_for: u8,
    pub(crate) held_ns: u64,
    pub(crate) expected_ns: u64,
    pub(crate) in_flight_ns: u64,
}

enum Line {
    Launched(Launched),
    StepBegan(u64),
    /// When, and what it was.
    StepEnded(u64, Phase),
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<Line>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Run when the settings are known.
pub(crate) fn start() {
    HOT.recording.store(settings::get().record.is_some(), Ordering::Relaxed);
}

/// In a forked child: the launches so far are its parent's. Where another thread was just writing one down there is no record.
pub(crate) fn forked() {
    match LINES.try_lock() {
        Ok(mut lines) => lines.clear(),
        Err(_) => HOT.recording.store(false, Ordering::Relaxed),
    }
}

/// Whether there is a record.
#[inline]
pub(crate) fn is_on() -> bool {
    HOT.recording.load(Ordering::Relaxed)
}

fn add(line: Line) {
    let mut lines = lines();
    if lines.len() < MOST {
        lines.push(line);
    }
}

pub(crate) fn launched(launched: Launched) {
    add(Line::Launched(launched));
}

pub(crate) fn step_began(now: u64) {
    if is_on() {
        add(Line::StepBegan(now));
    }
}

pub(crate) fn step_ended(now: u64, phase: Phase) {
    if is_on() {
        add(Line::StepEnded(now, phase));
    }
}

/// Writes it all. Run when the process ends.
pub(crate) fn write() {
    let settings = settings::get();
    let Some(file) = settings.record.as_ref().filter(|_| is_on()) else { return };
    let file = file_for_this_process(file, settings.process);
    if let Err(error) = write_whole(&file, &text()) {
        log::line(format_args!("cannot write the record to {}: {error}", file.display()));
    }
}

fn text() -> String {
    let lines = core::mem::take(&mut *lines());
    let mut text = String::with_capacity(lines.len() * 96);
    let coroutine = coroutine::all().next();
    let lanes = coroutine.map_or_else(String::new, lanes);
    let name = settings::get().name.clone().unwrap_or_default();
    let is_whole = lines.len() < MOST;
    let _ = writeln!(
        text,
        "{{\"record\":1,\"pid\":{},\"name\":{},\"whole\":{is_whole},\"lanes\":[{lanes}]}}",
        std::process::id(),
        json(&name),
    );
    // Those that were launched: by now the program may have unloaded them, and what was known of them is still there.
    let profiles = lines.iter().filter_map(|line| if let Line::Launched(it) = line { Some(it.profile) } else { None });
    let profiles: BTreeMap<u64, &Profile> = profiles.map(|profile| (profile.identity(), profile)).collect();
    for profile in profiles.values() {
        let each =
            |value: &dyn Fn(usize) -> u64| (0..lane::LANES).map(|lane| value(lane).to_string()).collect::<Vec<_>>();
        let _ = writeln!(
            text,
            "{{\"kernel\":\"{:016x}\",\"name\":{},\"nodes\":{},\"ns\":[{}],\"measured\":[{}]}}",
            profile.identity(),
            json(&profile.name()),
            profile.nodes(),
            each(&|lane| profile.on(lane).map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX))).join(","),
            each(&|lane| u64::from(profile.measured_on(lane))).join(","),
        );
    }
    for line in &lines {
        let _ = match line {
            Line::Launched(it) => writeln!(
                text,
                "{{\"at\":{},\"launch\":\"{:016x}\",\"stream\":\"{:x}\",\"lane\":{},\"reason\":{},\"held_for\":{},\"held\":{},\"expected\":{},\"in_flight\":{}}}",
                it.at_ns,
                it.profile.identity(),
                it.stream,
                it.lane,
                it.reason,
                it.held_for,
                it.held_ns,
                it.expected_ns,
                it.in_flight_ns,
            ),
            Line::StepBegan(at) => writeln!(text, "{{\"at\":{at},\"step\":\"began\"}}"),
            Line::StepEnded(at, phase) => {
                writeln!(text, "{{\"at\":{at},\"step\":\"ended\",\"phase\":\"{}\"}}", phase.name())
            }
        };
    }
    text
}

fn lanes(coroutine: &Coroutine) -> String {
    let each = coroutine.lanes.iter().enumerate().filter(|(_, lane)| lane.width() != 0);
    let each = each.map(|(index, lane)| {
        format!("{{\"lane\":{index},\"name\":{},\"width\":{}}}", json(&lane::name(index, lane)), lane.width())
    });
    each.collect::<Vec<_>>().join(",")
}
