//! What is kept of each program's run, for whoever wants to look closer: small, but with every request and every step.

use super::answers::{Answer, Answers, Ended, ServerStep};
use super::figures::quantile;
use super::output::Output;
use super::report::FolderError;
use super::told_apart::Taken;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Of the times between a request's tokens, in thousandths.
const GAP_LEVELS: [usize; 4] = [500, 900, 990, 1000];

/// What one program did in one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Kept {
    arm: &'static str,
    load: Option<f64>,
    /// From 1.
    round: usize,
    program: &'static str,
    /// Of an LLM server.
    server: Option<KeptServer>,
    /// When each step of a training ended.
    step_ends: Vec<f64>,
    /// Arrival and end of other requests.
    requests: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct KeptServer {
    fixed_batch: usize,
    interleave: bool,
    requests: Vec<KeptRequest>,
    /// Kind, begin, end, requests and tokens.
    steps: Vec<ServerStep>,
    /// When steps ended and what they were taken for, if the server was a tenant.
    taken: Vec<(f64, String)>,
}

/// Times are seconds of the clock that all processes share, or differences of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct KeptRequest {
    index: u64,
    arrival: f64,
    ttft: Option<f64>,
    end: Option<f64>,
    prompt_length: u64,
    tokens: usize,
    token_hash: String,
    /// p50, p90, p99 and the longest of the times between tokens.
    gaps: Option<[f64; 4]>,
    ended: Ended,
}

impl Kept {
    pub(crate) fn of(
        (arm, load, round): (&'static str, Option<f64>, usize),
        program: &'static str,
        output: &Output,
        taken: Option<&Taken>,
    ) -> Self {
        let mut kept = Self { arm, load, round, program, server: None, step_ends: Vec::new(), requests: Vec::new() };
        match output {
            Output::Answers(done) => kept.server = Some(KeptServer::of(done, taken)),
            Output::Steps(done) => kept.step_ends = done.steps.iter().map(|(end, _)| microseconds(*end)).collect(),
            Output::Requests(done) => {
                let times = done.requests.iter().map(|one| (microseconds(one.arrival), microseconds(one.end)));
                kept.requests = times.collect();
            }
        }
        kept
    }

    /// `ARM-LOAD-PROGRAM.json.gz`; later rounds have their number too.
    fn file(&self) -> String {
        let load = self.load.map_or(String::new(), |load| format!("{load}-"));
        let round = if self.round > 1 { format!("-{}", self.round) } else { String::new() };
        format!("{}-{load}{}{round}.json.gz", self.arm, self.program)
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), FolderError> {
        let file = folder.join(self.file());
        let text = serde_json::to_vec(self).expect("plain data has a JSON form");
        let written = std::fs::File::create(&file).and_then(|file| {
            let mut packed = GzEncoder::new(file, Compression::default());
            packed.write_all(&text)?;
            packed.finish().map(drop)
        });
        written.map_err(|source| FolderError::NotWritten { file, source })
    }
}

impl KeptServer {
    fn of(done: &Answers, taken: Option<&Taken>) -> Self {
        let step = |&ServerStep(kind, begin, end, rows, tokens): &ServerStep| {
            ServerStep(kind, microseconds(begin), microseconds(end), rows, tokens)
        };
        let ends = taken.iter().flat_map(|taken| &taken.ends);
        Self {
            fixed_batch: done.fixed_batch,
            interleave: done.interleave,
            requests: done.requests.iter().map(KeptRequest::of).collect(),
            steps: done.steps.iter().map(step).collect(),
            taken: ends.map(|(end, phase)| (microseconds(*end), phase.clone())).collect(),
        }
    }
}

impl KeptRequest {
    fn of(answer: &Answer) -> Self {
        let mut gaps: Vec<f64> = answer.gaps().map(microseconds).collect();
        gaps.sort_by(f64::total_cmp);
        let levels = GAP_LEVELS.map(|level| quantile(&gaps, level));
        Self {
            index: answer.index,
            arrival: microseconds(answer.arrival),
            ttft: answer.ttft().map(microseconds),
            end: answer.end().map(microseconds),
            prompt_length: answer.prompt_length,
            tokens: answer.tokens.len(),
            token_hash: format!("{:016x}", hash(&answer.tokens)),
            gaps: levels.iter().all(Option::is_some).then(|| levels.map(Option::unwrap_or_default)),
            ended: answer.ended,
        }
    }
}

/// What is finer than that is noise, and takes room.
fn microseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// FNV-1a, which anybody can compute again.
fn hash(tokens: &[u32]) -> u64 {
    let bytes = tokens.iter().flat_map(|token| token.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::super::answers::StepKind;
    use super::super::answers::tests::answer;
    use super::*;
    use flate2::read::GzDecoder;

    #[test]
    fn a_server_is_kept_with_every_request_and_step() {
        let answers = Answers {
            requests: vec![answer(7, 1.0, 0.5, 0.25, 5), answer(8, 2.0, 0.5, 0.25, 1)],
            steps: vec![ServerStep(StepKind::Prefill, 1.0, 1.500_000_04, 1, 9)],
            ..Answers::default()
        };
        let taken = Taken::default();
        let kept = Kept::of(("mps", Some(0.5), 2), "chat", &Output::Answers(answers), Some(&taken));
        let folder = tempfile::tempdir().unwrap();
        kept.write(folder.path()).unwrap();
        let file = std::fs::File::open(folder.path().join("mps-0.5-chat-2.json.gz")).unwrap();
        let read: serde_json::Value = serde_json::from_reader(GzDecoder::new(file)).unwrap();
        let server = &read["server"];
        assert_eq!(server["steps"], serde_json::json!([["prefill", 1.0, 1.5, 1, 9]]));
        let first = &server["requests"][0];
        assert_eq!(
            (&first["index"], &first["end"], &first["tokens"]),
            (&7.into(), &2.5.into(), &5.into()),
            "{first:#}"
        );
        assert_eq!((&first["ttft"], &first["gaps"]), (&0.5.into(), &serde_json::json!([0.25, 0.25, 0.25, 0.25])));
        assert!(server["requests"][1]["gaps"].is_null());
        assert_ne!(first["token_hash"], server["requests"][1]["token_hash"]);
    }
}
