//! A panic inside the shim ends at its boundary: the program gets a code, and only the log hears of it.

#[path = "../src/boundary.rs"]
mod boundary;

/// Stands in for the shim's log.
mod log {
    use std::sync::Mutex;

    pub(crate) static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    pub(crate) fn line(text: core::fmt::Arguments<'_>) {
        LINES.lock().expect("no panic while it is held").push(text.to_string());
    }
}

#[test]
fn a_panic_becomes_the_fallback_and_a_line_in_the_log() {
    boundary::silence_panics();
    assert_eq!(boundary::guarded(999, || panic!("something broke")), 999);
    assert_eq!(boundary::guarded(999, || 1), 1);
    let lines = log::LINES.lock().expect("no panic while it is held");
    assert!(lines.len() == 1 && lines[0].contains("something broke"), "{lines:?}");
}
