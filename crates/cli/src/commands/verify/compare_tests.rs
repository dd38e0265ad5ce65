//! Small runs, written out, and where they differ.

use super::*;

fn copy(number: u64, stream: u64, bytes: u64, digest: u64) -> Entry {
    Entry { number, channel: Channel::Copy { stream }, bytes, digest: Digest(digest) }
}

fn memory(number: u64, allocation: u64, bytes: u64, digest: u64) -> Entry {
    Entry { number, channel: Channel::Memory { allocation }, bytes, digest: Digest(digest) }
}

fn process(started: u64, program: &str, entries: &[Entry]) -> ProcessRecord {
    let program = program.to_string();
    ProcessRecord { process: 1, started, program, entries: entries.to_vec(), truncated: false }
}

fn observed(processes: &[ProcessRecord]) -> Observed {
    Observed { ending: Ending::Exit(0), stdout: Vec::new(), processes: processes.to_vec() }
}

/// The GPU's difference between two runs of one process each.
fn between(plain: &[Entry], other: &[Entry]) -> Option<GpuDifference> {
    compare_processes(&[process(0, "a", plain)], &[process(0, "a", other)])
}

fn printed(stdout: &[u8]) -> Observed {
    Observed { stdout: stdout.to_vec(), ..observed(&[]) }
}

#[test]
fn the_same_bytes_are_identical() {
    let run = observed(&[process(0, "a", &[copy(1, 0, 8, 1), memory(2, 0, 8, 2)])]);
    assert_eq!(compare(&run, &run), None);
}

#[test]
fn a_copy_that_differs_is_named() {
    let found = between(&[copy(1, 0, 8, 1), copy(2, 3, 16, 2)], &[copy(1, 0, 8, 1), copy(2, 3, 16, 9)]).unwrap();
    assert_eq!(found.different, 1);
    assert_eq!(found.first.place.channel, Channel::Copy { stream: 3 });
    assert_eq!(found.first.place.plain, Some(Side { number: 2, bytes: 16, digest: Digest(2) }));
    assert_eq!(found.first.place.other, Some(Side { number: 2, bytes: 16, digest: Digest(9) }));
    assert!(!found.first.process_missing);
}

#[test]
fn a_copy_of_another_size_differs() {
    let found = between(&[copy(1, 0, 8, 1)], &[copy(1, 0, 16, 1)]).unwrap();
    assert_eq!(found.first.place.plain.unwrap().bytes, 8);
    assert_eq!(found.first.place.other.unwrap().bytes, 16);
}

#[test]
fn how_streams_interleave_is_no_difference() {
    let plain = [copy(1, 1, 8, 10), copy(2, 2, 8, 20), copy(3, 1, 8, 11)];
    let other = [copy(1, 2, 8, 20), copy(2, 1, 8, 10), copy(3, 1, 8, 11)];
    assert_eq!(between(&plain, &other), None);
}

#[test]
fn the_order_in_which_threads_made_their_streams_is_no_difference() {
    let plain = [copy(1, 1, 8, 10), copy(2, 2, 8, 20), copy(3, 3, 8, 30), copy(4, 1, 8, 11)];
    let other = [copy(1, 2, 8, 10), copy(2, 2, 8, 11), copy(3, 3, 8, 20), copy(4, 1, 8, 30)];
    assert_eq!(between(&plain, &other), None);
    let other = [copy(1, 2, 8, 10), copy(2, 2, 8, 11), copy(3, 3, 8, 20), copy(4, 1, 8, 31)];
    assert_eq!(between(&plain, &other).unwrap().different, 1);
}

#[test]
fn the_order_within_a_stream_is_the_programs_own() {
    let found = between(&[copy(1, 1, 8, 10), copy(2, 1, 8, 11)], &[copy(1, 1, 8, 11), copy(2, 1, 8, 10)]).unwrap();
    assert_eq!((found.different, found.first.place.plain.unwrap().number), (2, 1));
}

#[test]
fn first_is_what_the_plain_run_did_first() {
    let plain = [copy(1, 5, 8, 1), copy(2, 1, 8, 2), copy(3, 5, 8, 3)];
    let other = [copy(1, 1, 8, 8), copy(2, 5, 8, 1), copy(3, 5, 8, 9)];
    let found = between(&plain, &other).unwrap();
    assert_eq!((found.different, found.first.place.plain.unwrap().number), (2, 2));
}

#[test]
fn a_missing_copy_has_no_other_side() {
    let found = between(&[copy(1, 0, 8, 1), copy(2, 0, 24, 2)], &[copy(1, 0, 8, 1)]).unwrap();
    assert_eq!((found.different, found.first.place.other), (1, None));
    assert_eq!(found.first.place.plain.unwrap().bytes, 24);
}

#[test]
fn a_copy_too_many_has_no_plain_side_and_comes_last() {
    let extra = between(&[copy(1, 0, 8, 1)], &[copy(1, 0, 8, 1), copy(2, 0, 8, 2)]).unwrap();
    assert_eq!((extra.first.place.plain, extra.first.place.other.unwrap().number), (None, 2));
    let plain = [copy(1, 0, 8, 1), copy(2, 1, 8, 2)];
    let other = [copy(1, 0, 8, 1), copy(2, 0, 8, 7), copy(3, 1, 8, 9)];
    assert_eq!(between(&plain, &other).unwrap().first.place.plain.unwrap().number, 2);
}

#[test]
fn a_stream_and_an_allocation_of_one_number_are_two_channels() {
    let found = between(&[copy(1, 1, 8, 1)], &[memory(1, 1, 8, 1)]).unwrap();
    assert_eq!((found.different, found.first.place.channel), (2, Channel::Copy { stream: 1 }));
}

#[test]
fn processes_are_paired_by_program_and_order_of_start() {
    let plain = [
        process(1, "a", &[copy(1, 0, 8, 1)]),
        process(2, "a", &[copy(1, 0, 8, 2)]),
        process(3, "b", &[copy(1, 0, 8, 3)]),
    ];
    let other = [
        process(1, "b", &[copy(1, 0, 8, 3)]),
        process(2, "a", &[copy(1, 0, 8, 1)]),
        process(3, "a", &[copy(1, 0, 8, 2)]),
    ];
    assert_eq!(compare_processes(&plain, &other), None);
    let found = compare_processes(&plain, &[other[2].clone(), other[1].clone(), other[0].clone()]).unwrap();
    assert_eq!((found.different, found.first.process, found.first.program.as_str()), (2, 1, "a"));
}

#[test]
fn a_process_that_only_one_run_has() {
    let [a, b] = [process(1, "a", &[copy(1, 0, 8, 1)]), process(2, "b", &[copy(1, 4, 8, 2)])];
    let lost = compare_processes(&[a.clone(), b.clone()], std::slice::from_ref(&a)).unwrap().first;
    assert_eq!((lost.process, lost.process_missing, lost.place.other), (2, true, None));
    let gained = compare_processes(std::slice::from_ref(&a), &[b, a.clone()]).unwrap().first;
    assert_eq!(
        (gained.process, gained.program.as_str(), gained.process_missing, gained.place.plain),
        (2, "b", true, None)
    );
}

#[test]
fn processes_that_copied_nothing_play_no_part() {
    let worker = process(2, "a", &[copy(1, 0, 8, 1)]);
    assert_eq!(compare_processes(std::slice::from_ref(&worker), &[process(1, "a", &[]), worker.clone()]), None);
}

#[test]
fn output_differs_at_a_line() {
    let found = compare(&printed(b"one\ntwo\nthree\n"), &printed(b"one\ntwice\nthree\n")).unwrap().stdout.unwrap();
    let line = |text: &str| Some(text.to_string());
    assert_eq!(found, StdoutDifference { line: 2, byte: 6, plain: line("two"), other: line("twice") });
}

#[test]
fn output_that_stops_early() {
    let found = compare(&printed(b"one\ntwo\n"), &printed(b"one\n")).unwrap().stdout.unwrap();
    assert_eq!((found.line, found.plain.as_deref(), found.other), (2, Some("two"), None));
    let found = compare(&printed(b"one"), &printed(b"one\n")).unwrap().stdout.unwrap();
    assert_eq!((found.line, found.byte, found.plain.as_deref()), (1, 3, Some("one")));
}

#[test]
fn long_and_odd_lines_are_shortened() {
    let found = compare(&printed(&[b'x'; 500]), &printed(&[0xff])).unwrap().stdout.unwrap();
    assert_eq!(found.plain.unwrap().chars().count(), 61);
    assert_eq!(found.other.as_deref(), Some("\u{fffd}"));
}

#[test]
fn another_ending_is_a_difference() {
    let plain = observed(&[]);
    let other = Observed { ending: Ending::Signal(9), ..plain.clone() };
    let found = compare(&plain, &other).unwrap();
    assert_eq!(found.ending, Some(EndingDifference { plain: Ending::Exit(0), other: Ending::Signal(9) }));
    assert_eq!((found.gpu, found.stdout), (None, None));
}
