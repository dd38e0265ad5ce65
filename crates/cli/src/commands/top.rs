//! `detshare top`: the tenants, as they do now.
//!
//! A thread asks the daemon (`feed.rs`), so that a slow answer never holds up a key. What it brings is kept for a minute
//! (`history.rs`) and drawn (`view.rs`). A daemon that goes away is waited for. The terminal is put back on every way
//! out: at the end, by a signal, by a panic.

mod feed;
mod history;
mod screen;
mod view;

use crate::daemon::{self, DaemonError};
use crate::exit;
use crate::table::{self, OutputError};
use clap::{Args, value_parser};
use feed::{Feed, Request};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;
use rustix::event::{PollFd, PollFlags, poll};
use screen::{Action, Screen};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A fast eye sees no more, and the daemon looks at its tenants ten times in a second.
const MOST_REFRESHES: i64 = 20;
/// How long a key, a signal or news may wait.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// As wide as a terminal that nobody has changed.
const USUAL_WIDTH: u16 = 80;

const KEYS: &str = "\
Keys:
  up, down  choose a tenant
  p         pause it, or let it go on
  c         make it latency, or best-effort
  s         sort by the next column
  q         quit";

/// Watch the tenants: class, lane, steps, times, launches, holds, memory
///
/// Marks: ● busy, ▲ busy and missing its objectives, · idle, ◐ holding a launch, ‖ paused; ! before the name: quarantined, as its kernels
/// keep running over three times as long as predicted. The last column shows the steps (or, where there are none, the
/// launches) of the last minute.
#[derive(Debug, Args)]
#[command(after_help = KEYS)]
pub(crate) struct Arguments {
    /// Refreshes in a second
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=MOST_REFRESHES))]
    rate: u32,

    /// Print one frame as plain text, and end
    #[arg(long)]
    once: bool,
}

/// What the flags resolve to.
#[derive(Debug)]
struct Settings {
    interval: Duration,
    once: bool,
}

impl From<Arguments> for Settings {
    fn from(Arguments { rate, once }: Arguments) -> Self {
        Self { interval: Duration::from_secs(1) / rate, once }
    }
}

/// Why there is nothing to watch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("standard output is not a terminal: use --once for one frame as text, or `detshare ps`")]
    NoTerminal,
    #[error("the terminal does not do what it should ({0}): use --once, or another terminal")]
    Terminal(#[source] std::io::Error),
    #[error("cannot watch for signals or ask in the background: {0}")]
    System(#[source] std::io::Error),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl TopError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::NoTerminal => exit::USAGE,
            Self::Terminal(_) | Self::System(_) => exit::SYSTEM,
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Watches until it is told to end.
pub(crate) fn run(arguments: Arguments) -> Result<u8, TopError> {
    let settings = Settings::from(arguments);
    if settings.once {
        return print_once();
    }
    if !std::io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    // Another user's folder is not waited for.
    match daemon::client() {
        Err(error) if !error.is_absence() => return Err(error.into()),
        _ => {}
    }
    let ended_by = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, Arc::clone(&ended_by), number).map_err(TopError::System)?;
    }
    let feed = Feed::start(settings.interval).map_err(TopError::System)?;
    end_with_the_terminal().map_err(TopError::System)?;
    // It also puts the terminal back before a panic is printed.
    let mut terminal = ratatui::try_init().map_err(TopError::Terminal)?;
    let watched = watch(&mut terminal, &feed, &ended_by);
    ratatui::restore();
    watched.map_err(TopError::Terminal)?;
    let signal = ended_by.load(Ordering::Relaxed);
    Ok(if signal == 0 { 0 } else { exit::by_signal(i32::try_from(signal).unwrap_or_default()) })
}

fn watch(terminal: &mut ratatui::DefaultTerminal, feed: &Feed, ended_by: &AtomicUsize) -> std::io::Result<()> {
    let mut screen = Screen::default();
    let mut is_stale = true;
    while ended_by.load(Ordering::Relaxed) == 0 {
        for news in feed.news() {
            screen.take(news, Instant::now());
            is_stale = true;
        }
        if is_stale {
            terminal.draw(|frame| view::draw(frame, &screen))?;
            is_stale = false;
        }
        if !event::poll(LONGEST_SLEEP)? {
            continue;
        }
        is_stale = true;
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match screen.press(key.code, key.modifiers) {
            Action::Nothing => {}
            Action::Quit => return Ok(()),
            Action::Change { pid, patch } => feed.request(Request { pid, patch }),
        }
    }
    Ok(())
}

/// Ends the process when the terminal is closed. That need not come with a signal, and whoever then reads keys would do so
/// for ever.
fn end_with_the_terminal() -> std::io::Result<()> {
    let wait = || {
        let terminal = std::io::stdout();
        let mut terminal = [PollFd::new(&terminal, PollFlags::empty())];
        while poll(&mut terminal, None).is_err() {}
        // There is no terminal to put back.
        std::process::exit(exit::by_signal(SIGHUP).into());
    };
    std::thread::Builder::new().name("terminal".to_string()).spawn(wait).map(|_| ())
}

/// One frame, as high as it must be.
fn print_once() -> Result<u8, TopError> {
    let client = daemon::client()?;
    let status = client.status().map_err(DaemonError::from)?;
    let tenants = client.tenants().map_err(DaemonError::from)?;
    let mut screen = Screen::default();
    screen.take(feed::News::Seen { status: Box::new(status), tenants }, Instant::now());
    let width = match terminal::size() {
        Ok((width, _)) if std::io::stdout().is_terminal() => width,
        _ => USUAL_WIDTH,
    };
    table::print(&text(&screen, width, view::height(&screen)))?;
    Ok(0)
}

/// What the frame looks like.
fn text(screen: &Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory is a terminal");
    terminal.draw(|frame| view::draw(frame, screen)).expect("memory can be drawn on");
    let buffer = terminal.backend().buffer();
    let line = |row: u16| -> String { (0..width).map(|column| buffer[(column, row)].symbol()).collect() };
    let lines: Vec<_> = (0..height).map(|row| line(row).trim_end().to_string()).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

#[cfg(test)]
#[path = "top_tests.rs"]
mod tests;
