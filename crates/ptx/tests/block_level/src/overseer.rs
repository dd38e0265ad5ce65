//! A worker seen from outside: started when it is needed, asked, and ended when it does not answer.
//!
//! Nothing here waits without an end. A worker ends itself when a request takes too long; where not even that happens,
//! because the driver keeps it, it is killed, and where that does not help either, it is left behind.

use crate::worker::{DOING, Outcome, Request};
use anyhow::{Context, Result, bail};
use detshare_test_child::{ending, patience};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a worker has for its first word. Many processes at once wait for each other in a driver.
const FIRST_WORD_S: u32 = 60;
/// How much longer than it may take is waited for an answer, in which a worker ends itself.
const GRACE: Duration = Duration::from_secs(3);
/// How long a worker that was killed is waited for, and how often is looked.
const LAST: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);

/// Where launches are judged, by how many, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Means {
    pub(crate) driver: PathBuf,
    pub(crate) jobs: usize,
    /// Seconds for one launch, with loading its module.
    pub(crate) patience_s: u32,
    /// When everything is to be over.
    pub(crate) end: Option<Instant>,
}

impl Means {
    /// Whether there is no time left.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// How much of that time there still is.
    fn left(&self, most: Duration) -> Duration {
        self.end.map_or(most, |end| most.min(end.saturating_duration_since(Instant::now())))
    }
}

/// A worker, or the place for one.
pub(crate) struct Overseer<'m> {
    means: &'m Means,
    worker: Option<Running>,
}

struct Running {
    process: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Running {
    fn new(command: &mut Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no worker")?;
        let requests = process.stdin.take().context("no way to a worker")?;
        let output = process.stdout.take().context("no way back from a worker")?;
        let (sender, answers) = channel();
        // Ends with the worker, or with whoever wants to hear of it.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { process, requests, answers })
    }

    /// Its answer, and on the way what it is doing.
    fn answer(&self, wait: Duration, doing: &mut Option<String>) -> Result<String, RecvTimeoutError> {
        let end = Instant::now() + wait;
        loop {
            let line = self.answers.recv_timeout(end.saturating_duration_since(Instant::now()))?;
            match line.strip_prefix(DOING) {
                Some(what) => *doing = Some(what.to_string()),
                None => return Ok(line),
            }
        }
    }

    /// Waits for its end, which comes when there are no more requests; a moment at most, then it is killed.
    fn end(self) -> Result<ExitStatus> {
        let Self { mut process, requests, answers } = self;
        drop((requests, answers));
        if let Some(status) = waited(&mut process)? {
            return Ok(status);
        }
        process.kill().context("a worker cannot be killed")?;
        waited(&mut process)?.context("a worker does not even end when it is killed, and is left behind")
    }
}

fn said(ended: Result<ExitStatus>) {
    if let Err(error) = ended {
        eprintln!("{error:#}");
    }
}

fn waited(process: &mut Child) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        let status = process.try_wait().context("a worker is lost")?;
        if status.is_some() || started.elapsed() > LAST {
            return Ok(status);
        }
        std::thread::sleep(LOOK);
    }
}

impl<'m> Overseer<'m> {
    pub(crate) fn new(means: &'m Means) -> Self {
        Self { means, worker: None }
    }

    /// Has a worker, whether or not there was one.
    pub(crate) fn ready(&mut self) -> Result<()> {
        if self.worker.is_none() {
            self.worker = Some(self.start()?);
        }
        Ok(())
    }

    /// The answer; None if the time for everything is over before it comes.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Option<Outcome>> {
        self.ready()?;
        let mut running = self.worker.take().context("no worker")?;
        let limit_s = request.limit_s(self.means.patience_s);
        let longest = Duration::from_secs(limit_s.into()) + GRACE;
        let wait = self.means.left(longest);
        let asked = writeln!(running.requests, "{}", request.to_json());
        let mut doing = None;
        let answered =
            if asked.is_ok() { running.answer(wait, &mut doing) } else { Err(RecvTimeoutError::Disconnected) };
        let line = match answered {
            Ok(line) => line,
            Err(why) => {
                if why == RecvTimeoutError::Timeout {
                    // Whether or not that works is for `end` to say.
                    _ = running.process.kill();
                }
                let is_cut_short = why == RecvTimeoutError::Timeout && wait < longest;
                let outcome = match running.end() {
                    Ok(_) if why == RecvTimeoutError::Timeout => format!("not done after {} s", longest.as_secs()),
                    Ok(status) => ending(status.into_raw(), limit_s),
                    Err(error) => format!("{error:#}"),
                };
                let outcome = doing.map_or(outcome.clone(), |doing| format!("{outcome}: {doing}"));
                return Ok((!is_cut_short).then_some(Outcome::Wrong(outcome)));
            }
        };
        let answer: Value = serde_json::from_str(&line).context("a worker's answer makes no sense")?;
        if answer["last"] == true {
            said(running.end());
        } else {
            self.worker = Some(running);
        }
        Outcome::from_json(&answer).with_context(|| format!("{line:?}")).map(Some)
    }

    fn start(&self) -> Result<Running> {
        let mut command = Command::new(std::env::current_exe().context("who am I?")?);
        // No module comes twice, so a cache is of no use.
        command.arg("worker").arg("--driver").arg(&self.means.driver).env("CUDA_CACHE_DISABLE", "1");
        command.arg("--patience").arg(self.means.patience_s.to_string());
        let running = Running::new(&mut command)?;
        match running.answers.recv_timeout(self.means.left(Duration::from_secs(patience(FIRST_WORD_S).into()))) {
            Ok(greeting) if greeting == "ready" => Ok(running),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                said(running.end());
                bail!("{} cannot be used", self.means.driver.display())
            }
            Err(RecvTimeoutError::Timeout) => {
                said(running.end());
                bail!("{} lets nobody begin", self.means.driver.display())
            }
        }
    }
}

impl Drop for Overseer<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.worker.take() {
            said(running.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request::Generated { seed: 1, first: 0, count: 1, index: 0 };

    fn running(script: &str) -> Running {
        Running::new(Command::new("sh").args(["-c", script])).unwrap()
    }

    /// What comes of a request to a worker that does this, with a second for it, and so long for everything.
    fn asked(script: &str, everything: Option<Duration>) -> Option<Outcome> {
        let end = everything.map(|time| Instant::now() + time);
        let means = Means { driver: PathBuf::new(), jobs: 1, patience_s: 1, end };
        Overseer { means: &means, worker: Some(running(script)) }.ask(&REQUEST).unwrap()
    }

    #[test]
    fn a_worker_that_does_not_end_is_killed() {
        assert_eq!(running("read line; exit 3").end().unwrap().code(), Some(3));
        let stubborn = running("trap '' TERM ALRM; while :; do sleep 1; done");
        assert_eq!(stubborn.end().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn every_request_has_an_end() {
        let wrong = |why: &str| Some(Outcome::Wrong(why.into()));
        assert_eq!(asked(r#"read line; echo '{"wrong": "bits"}'"#, None), wrong("bits"));
        assert_eq!(asked("read line; kill -ALRM $$", None), wrong("not done after 1 s"));
        assert_eq!(asked("read line; exit 7", None), wrong("ended the process with code 7"));
        assert_eq!(
            asked("read line; echo doing this; echo doing that; exit 7", None),
            wrong("ended the process with code 7: that")
        );
        assert_eq!(asked("trap '' ALRM; exec sleep 60", None), wrong("not done after 4 s"));
        assert_eq!(asked("exec sleep 60", Some(Duration::ZERO)), None, "the time for everything is over");
    }
}
