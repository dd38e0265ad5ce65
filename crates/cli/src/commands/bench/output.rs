//! What a program says that it did: read from its JSON, or made from the lines that it printed.

use super::answers::Answers;
use super::scenario::{Program, Protocol};
use detshare_api::Class;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a program did. Times are seconds of the clock that all processes share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Output {
    Requests(Requests),
    Steps(Steps),
    Answers(Answers),
}

/// Of a latency program.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Requests {
    #[serde(deserialize_with = "requests")]
    pub(crate) requests: Vec<Request>,
    /// Of all results.
    #[serde(default)]
    pub(crate) digest: Option<String>,
    /// Of all results so far, after every so many requests.
    #[serde(default)]
    pub(crate) result_digests: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    pub(crate) arrival: f64,
    pub(crate) end: f64,
}

/// Of a best-effort program.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Steps {
    /// When each ended, and its loss as the program's own bits.
    pub(crate) steps: Vec<(f64, String)>,
    /// Of the parameters, by the number of steps that they had seen.
    #[serde(default)]
    pub(crate) parameters_digest: BTreeMap<String, String>,
    /// When it did something else, such as taking a digest.
    #[serde(default)]
    pub(crate) paused: Vec<(f64, f64)>,
    /// Of all that it computed.
    #[serde(default)]
    pub(crate) digest: Option<String>,
}

/// Arrival, begin and end of each; a request's latency counts from its arrival.
fn requests<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Vec<Request>, D::Error> {
    let all = Vec::<(f64, f64, f64)>::deserialize(input)?;
    Ok(all.into_iter().map(|(arrival, _, end)| Request { arrival, end }).collect())
}

/// Why nothing is known of what a program did.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("it wrote no results that can be read ({0}): are program and detshare of the same version?")]
    Unreadable(String),
    #[error("it did no work that could be measured: raise --seconds")]
    Nothing,
}

/// A line that a program printed, and when it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) at: f64,
    pub(crate) text: String,
}

/// Reads what a program wrote into its file.
pub(crate) fn from_json(program: &Program, text: &str) -> Result<Output, OutputError> {
    let unreadable = |error: serde_json::Error| OutputError::Unreadable(error.to_string());
    let output = match (program.protocol, program.class) {
        (Protocol::Llm { .. }, _) => Output::Answers(serde_json::from_str(text).map_err(unreadable)?),
        (_, Class::Latency) => Output::Requests(serde_json::from_str(text).map_err(unreadable)?),
        (_, Class::BestEffort) => Output::Steps(serde_json::from_str(text).map_err(unreadable)?),
    };
    output.span().map(|_| output).ok_or(OutputError::Nothing)
}

/// Makes it from lines: `step N` after each step, `checksum X` in the end. A request counts from when the pause after the
/// one before it was to end; the first step, which has none before it, is not counted as a request. So what it takes to
/// read a line, and to wake up late from a pause, is in the figures, alone as well as together.
pub(crate) fn from_lines(program: &Program, lines: &[Line]) -> Result<Output, OutputError> {
    let ends: Vec<f64> = lines.iter().filter(|line| line.text.starts_with("step ")).map(|line| line.at).collect();
    let digest = lines.iter().find_map(|line| line.text.strip_prefix("checksum ")).map(str::to_string);
    let Some(digest) = digest else { return Err(OutputError::Unreadable("no checksum was printed".to_string())) };
    let pause = match program.protocol {
        Protocol::Lines { pause_us, .. } => f64::from(pause_us) / 1e6,
        Protocol::Serve { .. } | Protocol::Train | Protocol::Llm { .. } => 0.0,
    };
    let output = match program.class {
        Class::Latency => {
            let pairs = ends.windows(2);
            let requests =
                pairs.map(|pair| Request { arrival: (pair[0] + pause).min(pair[1]), end: pair[1] }).collect();
            Output::Requests(Requests { requests, digest: Some(digest), result_digests: Vec::new() })
        }
        Class::BestEffort => {
            let steps = ends.into_iter().map(|end| (end, String::new())).collect();
            Output::Steps(Steps { steps, digest: Some(digest), ..Steps::default() })
        }
    };
    output.span().map(|_| output).ok_or(OutputError::Nothing)
}

impl Output {
    /// From when to when it is known to have been at work.
    pub(crate) fn span(&self) -> Option<(f64, f64)> {
        let (from, to) = match self {
            Self::Requests(done) => {
                let ends = done.requests.iter().map(|request| request.end);
                (done.requests.first()?.arrival, ends.fold(f64::NEG_INFINITY, f64::max))
            }
            Self::Steps(done) => (done.steps.first()?.0, done.steps.last()?.0),
            Self::Answers(done) => return done.span(),
        };
        (from < to).then_some((from, to))
    }

    /// From when to when what others do beside it is to be counted. After the last request of an LLM server it has less and
    /// less to do, for longer the slower it is: who runs beside it would have a larger share for that.
    pub(crate) fn in_company(&self) -> Option<(f64, f64)> {
        match self {
            Self::Answers(done) => done.arrivals().or_else(|| done.span()),
            Self::Requests(_) | Self::Steps(_) => self.span(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::SCENARIOS;
    use super::*;

    fn program(scenario: &str, class: Class) -> &'static Program {
        let scenario = SCENARIOS.iter().find(|one| one.name == scenario).unwrap();
        scenario.programs.iter().find(|program| program.class == class).unwrap()
    }

    #[test]
    fn json_of_a_server() {
        let text = r#"{"requests": [[1.0, 1.5, 2.0], [3.0, 3.0, 3.5]], "digest": "ab", "result_digests": ["a"]}"#;
        let Output::Requests(read) = from_json(program("small", Class::Latency), text).unwrap() else { panic!() };
        assert_eq!(read.requests[0], Request { arrival: 1.0, end: 2.0 });
        assert_eq!((read.digest.as_deref(), read.result_digests.len()), (Some("ab"), 1));
    }

    #[test]
    fn json_of_a_training() {
        let text =
            r#"{"steps": [[1.0, "3f80"], [2.0, "3f00"]], "parameters_digest": {"20": "cd"}, "paused": [[1.2, 1.3]]}"#;
        let Output::Steps(read) = from_json(program("small", Class::BestEffort), text).unwrap() else { panic!() };
        assert_eq!(read.steps[1], (2.0, "3f00".to_string()));
        assert_eq!((read.parameters_digest["20"].as_str(), read.paused.as_slice()), ("cd", &[(1.2, 1.3)][..]));
    }

    #[test]
    fn json_of_an_llm_server() {
        let text =
            r#"{"requests": [{"index": 0, "arrival": 1.0, "token_times": [2.0], "tokens": [7], "ended": "complete"}]}"#;
        let Output::Answers(read) = from_json(program("llm-train", Class::Latency), text).unwrap() else { panic!() };
        assert_eq!((read.requests.len(), read.span()), (1, Some((1.0, 2.0))));
        let nothing = from_json(program("llm-train", Class::Latency), r#"{"requests": []}"#);
        assert!(matches!(nothing, Err(OutputError::Nothing)));
    }

    #[test]
    fn what_makes_no_sense() {
        let server = program("small", Class::Latency);
        assert!(matches!(from_json(server, "{}"), Err(OutputError::Unreadable(_))));
        assert!(matches!(from_json(server, r#"{"requests": []}"#), Err(OutputError::Nothing)));
        assert!(matches!(from_lines(program("soft", Class::Latency), &[]), Err(OutputError::Unreadable(_))));
    }

    #[test]
    fn lines_of_steps() {
        let line = |at: f64, text: &str| Line { at, text: text.to_string() };
        let lines = [line(1.0, "step 1"), line(1.006, "step 2"), line(1.015, "step 3"), line(1.02, "checksum 7f")];
        let Output::Requests(read) = from_lines(program("soft", Class::Latency), &lines).unwrap() else { panic!() };
        let latencies: Vec<f64> = read.requests.iter().map(|one| one.end - one.arrival).collect();
        assert!((latencies[0] - 0.002).abs() < 1e-9 && (latencies[1] - 0.005).abs() < 1e-9, "{latencies:?}");
        assert_eq!(read.digest.as_deref(), Some("7f"));
        let Output::Steps(read) = from_lines(program("soft", Class::BestEffort), &lines).unwrap() else { panic!() };
        assert_eq!(read.steps.len(), 3);
    }
}
