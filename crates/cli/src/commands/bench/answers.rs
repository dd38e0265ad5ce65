//! What an LLM server says that it did: its requests with their tokens, and its steps.

use serde::{Deserialize, Serialize};

/// Of an LLM server. Times are seconds of the clock that all processes share.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Answers {
    /// Those that arrived, by their place in the trace.
    pub(crate) requests: Vec<Answer>,
    /// Those that were still to come when it was told to stop.
    #[serde(default)]
    pub(crate) not_arrived: usize,
    #[serde(default)]
    pub(crate) steps: Vec<ServerStep>,
    /// When it began: requests come so long after that as the trace says.
    #[serde(default)]
    pub(crate) begin_s: f64,
    /// How many requests it takes at a time, if its steps are always so large.
    #[serde(default)]
    pub(crate) fixed_batch: usize,
    /// Whether it does a decode step between two parts of a prompt.
    #[serde(default)]
    pub(crate) interleave: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Answer {
    /// Its place in the trace.
    pub(crate) index: u64,
    pub(crate) arrival: f64,
    #[serde(default)]
    pub(crate) prompt_length: u64,
    /// When it got each of its tokens.
    pub(crate) token_times: Vec<f64>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) ended: Ended,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    #[serde(rename = "complete")]
    Complete,
    /// It was refused.
    #[serde(rename = "too long")]
    TooLong,
    #[serde(rename = "cancelled", alias = "stopped")]
    Stopped,
}

/// Kind, begin, end, requests and tokens of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerStep(pub(crate) StepKind, pub(crate) f64, pub(crate) f64, pub(crate) u32, pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StepKind {
    Prefill,
    Decode,
}

impl StepKind {
    pub(crate) const ALL: [Self; 2] = [Self::Prefill, Self::Decode];

    /// As the shim calls it too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

impl ServerStep {
    pub(crate) fn seconds(&self) -> f64 {
        self.2 - self.1
    }
}

impl Answer {
    pub(crate) fn is_complete(&self) -> bool {
        self.ended == Ended::Complete
    }

    /// When it was last given something.
    pub(crate) fn end(&self) -> Option<f64> {
        self.token_times.last().copied()
    }

    /// From its arrival to its first token, in seconds.
    pub(crate) fn ttft(&self) -> Option<f64> {
        Some(self.token_times.first()? - self.arrival)
    }

    /// From each token to the next, in seconds.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = f64> {
        self.token_times.windows(2).map(|pair| pair[1] - pair[0])
    }
}

impl Answers {
    /// From the first arrival to the last token.
    pub(crate) fn span(&self) -> Option<(f64, f64)> {
        let from = self.requests.iter().map(|request| request.arrival).fold(f64::INFINITY, f64::min);
        let to = self.requests.iter().filter_map(Answer::end).fold(f64::NEG_INFINITY, f64::max);
        (from < to).then_some((from, to))
    }

    /// From the first arrival to the last: after that a server has less and less to do.
    pub(crate) fn arrivals(&self) -> Option<(f64, f64)> {
        let arrivals = || self.requests.iter().map(|request| request.arrival);
        let (from, to) = (arrivals().fold(f64::INFINITY, f64::min), arrivals().fold(f64::NEG_INFINITY, f64::max));
        (from < to).then_some((from, to))
    }

    /// The part of the time in which a step was under way, while requests came.
    pub(crate) fn busy(&self) -> Option<f64> {
        let (from, to) = self.arrivals()?;
        let within = |step: &ServerStep| (step.2.min(to) - step.1.max(from)).max(0.0);
        (!self.steps.is_empty()).then(|| self.steps.iter().map(within).sum::<f64>() / (to - from))
    }

    /// Requests a second that it did answer, from the first arrival to the last token.
    pub(crate) fn per_second(&self) -> Option<f64> {
        let (from, to) = self.span()?;
        let complete = self.requests.iter().filter(|request| request.is_complete()).count();
        Some(crate::quantity::approximate(complete as u64) / (to - from))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A complete answer: its first token comes `ttft` after the arrival, and each further one `gap` later.
    pub(crate) fn answer(index: u64, arrival: f64, ttft: f64, gap: f64, tokens: u32) -> Answer {
        let time = |number: u32| arrival + ttft + gap * f64::from(number);
        Answer {
            index,
            arrival,
            prompt_length: 9,
            token_times: (0..tokens).map(time).collect(),
            tokens: (0..tokens).collect(),
            ended: Ended::Complete,
        }
    }

    #[test]
    fn a_report_of_the_server() {
        let text = r#"{"program": "llm_server", "source": {"kind": "trace"}, "not_arrived": 2, "digest": "ab", "requests": [
            {"index": 7, "arrival": 1.0, "begin": 1.1, "first_token": 1.5, "token_times": [1.5, 1.75], "prompt_length": 9,
             "output_length": 2, "tokens": [3, 4], "ended": "complete"},
            {"index": 8, "arrival": 2.0, "begin": null, "first_token": null, "token_times": [], "prompt_length": 9,
             "output_length": 2, "tokens": [], "ended": "too long"}],
            "steps": [["prefill", 1.1, 1.5, 1, 9], ["decode", 1.5, 1.75, 1, 1]]}"#;
        let read: Answers = serde_json::from_str(text).unwrap();
        assert_eq!((read.requests.len(), read.not_arrived, read.span()), (2, 2, Some((1.0, 1.75))));
        let first = &read.requests[0];
        assert_eq!((first.ttft(), first.gaps().collect::<Vec<_>>()), (Some(0.5), vec![0.25]));
        assert_eq!((read.requests[1].ended, read.requests[1].ttft()), (Ended::TooLong, None));
        assert_eq!(read.steps[0].0, StepKind::Prefill);
    }

    #[test]
    fn a_server_is_busy_for_a_part_of_the_time_in_which_requests_come() {
        let step = |begin: f64, end: f64| ServerStep(StepKind::Decode, begin, end, 1, 1);
        let answers = Answers {
            requests: vec![answer(0, 1.0, 0.5, 0.25, 3), answer(1, 3.0, 1.0, 0.5, 3)],
            // What is before the first arrival and after the last one does not count.
            steps: vec![step(0.5, 1.25), step(1.25, 1.5), step(2.5, 3.5), step(3.5, 5.0)],
            ..Answers::default()
        };
        assert_eq!((answers.arrivals(), answers.span()), (Some((1.0, 3.0)), Some((1.0, 5.0))));
        assert_eq!((answers.busy(), answers.per_second()), (Some(0.5), Some(0.5)));
        assert_eq!((Answers::default().busy(), Answers::default().per_second()), (None, None));
    }
}
