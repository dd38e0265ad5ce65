//! What an LLM server says that it did: its requests with their tokens, and its steps.

use serde::Deserialize;

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
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Answer {
    /// Its place in the trace.
    pub(crate) index: u64,
    pub(crate) arrival: f64,
    /// When it got each of its tokens.
    pub(crate) token_times: Vec<f64>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) ended: Ended,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct ServerStep(pub(crate) StepKind, pub(crate) f64, pub(crate) f64, pub(crate) u32, pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StepKind {
    Prefill,
    Decode,
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

    /// Requests a second that it could answer if there were always more of them waiting than it can take: what the steps of
    /// a request's prompt take, and for each further token its part of a decode step with the most requests that there were.
    pub(crate) fn capacity(&self) -> Option<f64> {
        let seconds = |ServerStep(_, begin, end, ..): &ServerStep| end - begin;
        let of = |kind: StepKind| self.steps.iter().filter(move |step| step.0 == kind);
        let complete = self.requests.iter().filter(|request| request.is_complete());
        let (count, decoded) = complete.fold((0.0, 0.0), |(count, decoded), request| {
            (count + 1.0, decoded + crate::quantity::approximate(request.gaps().count() as u64))
        });
        let prefill: f64 = of(StepKind::Prefill).map(seconds).sum();
        let most = of(StepKind::Decode).map(|step| step.3).max().unwrap_or(1).max(1);
        let full: Vec<f64> = of(StepKind::Decode).filter(|step| step.3 == most).map(seconds).collect();
        let decode_step = full.iter().sum::<f64>() / crate::quantity::approximate(full.len().max(1) as u64);
        let all = prefill + decoded * decode_step / f64::from(most);
        (count > 0.0 && all > 0.0).then_some(count / all)
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
    fn capacity_is_what_full_steps_would_do() {
        let step = |kind, begin: f64, lasts: f64, rows| ServerStep(kind, begin, begin + lasts, rows, 1);
        let answers = Answers {
            requests: vec![answer(0, 0.0, 0.1, 0.02, 11), answer(1, 0.0, 0.2, 0.02, 11)],
            not_arrived: 0,
            steps: vec![
                step(StepKind::Prefill, 0.0, 0.1, 1),
                step(StepKind::Decode, 0.1, 0.5, 1),
                step(StepKind::Prefill, 0.6, 0.1, 1),
                step(StepKind::Decode, 0.7, 0.02, 2),
                step(StepKind::Decode, 0.72, 0.02, 2),
            ],
        };
        // Each takes 0.1 s for its prompt, and ten halves of 20 ms.
        assert!((answers.capacity().unwrap() - 5.0).abs() < 1e-9, "{:?}", answers.capacity());
        assert_eq!(Answers::default().capacity(), None);
    }
}
