//! Did a program compute what it computes alone? Runs differ in length, so what both did is compared: the beginning.

use super::answers::Answers;
use super::output::{Output, Requests, Steps};
use serde::Serialize;
use std::collections::BTreeMap;

/// Whether a run computed the same bits as the first one alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(crate) enum Identity {
    /// In everything that both have.
    Identical {
        /// How many digests or values were compared.
        compared: usize,
    },
    Different {
        /// Where it begins.
        first: String,
        /// How many of those that were compared are not the same: of an LLM server, how many requests.
        different: usize,
        compared: usize,
    },
    /// It is what the others are compared with.
    Reference,
    /// Nothing could be compared.
    Unknown { reason: String },
}

impl Identity {
    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into() }
    }

    pub(crate) fn is_different(&self) -> bool {
        matches!(self, Self::Different { .. })
    }

    /// In a word or two, or the difference.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Identical { .. } => "identical".to_string(),
            Self::Different { first, different, compared } => {
                format!("different: {first}; {different} of {compared} differ")
            }
            Self::Reference => "reference".to_string(),
            Self::Unknown { .. } => "not compared".to_string(),
        }
    }
}

/// Compares a run with the one alone.
pub(crate) fn compare(alone: &Output, found: &Output) -> Identity {
    let mut findings = Findings::default();
    match (alone, found) {
        (Output::Requests(alone), Output::Requests(found)) => findings.compare_requests(alone, found),
        (Output::Steps(alone), Output::Steps(found)) => findings.compare_steps(alone, found),
        (Output::Answers(alone), Output::Answers(found)) => findings.compare_answers(alone, found),
        _ => return Identity::unknown("the runs are of two programs"),
    }
    match findings {
        Findings { first_difference: Some(first), different, compared } => {
            Identity::Different { first, different, compared }
        }
        Findings { compared: 0, .. } => {
            Identity::unknown("the runs differ in length, and say too little of how they began")
        }
        Findings { compared, .. } => Identity::Identical { compared },
    }
}

#[derive(Debug, Default)]
struct Findings {
    compared: usize,
    different: usize,
    first_difference: Option<String>,
}

impl Findings {
    fn compare_requests(&mut self, alone: &Requests, found: &Requests) {
        for (number, (expected, seen)) in alone.result_digests.iter().zip(&found.result_digests).enumerate() {
            self.compare(expected, seen, || {
                format!("the results up to digest {} of {}", number + 1, found.result_digests.len())
            });
        }
        if alone.requests.len() == found.requests.len() {
            self.compare_if_both(alone.digest.as_ref(), found.digest.as_ref(), "the digest of all results");
        }
    }

    fn compare_steps(&mut self, alone: &Steps, found: &Steps) {
        for (number, (expected, seen)) in alone.steps.iter().zip(&found.steps).enumerate() {
            // A program that prints no losses has nothing to compare here.
            if !expected.1.is_empty() || !seen.1.is_empty() {
                self.compare(&expected.1, &seen.1, || format!("the loss of step {}", number + 1));
            }
        }
        for (step, expected) in &alone.parameters_digest {
            if let Some(seen) = found.parameters_digest.get(step) {
                self.compare(expected, seen, || format!("the parameters after step {step}"));
            }
        }
        if alone.steps.len() == found.steps.len() {
            self.compare_if_both(alone.digest.as_ref(), found.digest.as_ref(), "the digest of all that it computed");
        }
    }

    /// Request by request; of one that was not complete in both runs, the tokens that it had in both.
    fn compare_answers(&mut self, alone: &Answers, found: &Answers) {
        let expected: BTreeMap<u64, _> = alone.requests.iter().map(|request| (request.index, request)).collect();
        for seen in &found.requests {
            let Some(expected) = expected.get(&seen.index) else { continue };
            let are_complete = expected.is_complete() && seen.is_complete();
            if are_complete && expected.tokens.len() != seen.tokens.len() {
                let (one, other) = (expected.tokens.len().to_string(), seen.tokens.len().to_string());
                self.compare(&one, &other, || format!("the number of tokens of request {}", seen.index));
                continue;
            }
            let mut pairs = expected.tokens.iter().zip(&seen.tokens);
            match pairs.clone().position(|(one, other)| one != other) {
                Some(place) => {
                    let (one, other) = (expected.tokens[place].to_string(), seen.tokens[place].to_string());
                    self.compare(&one, &other, || format!("token {} of request {}", place + 1, seen.index));
                }
                None => self.compared += usize::from(pairs.next().is_some()),
            }
        }
    }

    fn compare_if_both(&mut self, expected: Option<&String>, seen: Option<&String>, what: &str) {
        if let (Some(expected), Some(seen)) = (expected, seen) {
            self.compare(expected, seen, || what.to_string());
        }
    }

    fn compare(&mut self, expected: &str, seen: &str, what: impl FnOnce() -> String) {
        self.compared += 1;
        if expected == seen {
            return;
        }
        self.different += 1;
        if self.first_difference.is_none() {
            self.first_difference = Some(format!("{} ({}, alone {})", what(), short(seen), short(expected)));
        }
    }
}

/// Enough of a digest to tell it from another.
fn short(digest: &str) -> String {
    const LONGEST: usize = 12;
    digest.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::super::output::Request;
    use super::*;

    fn requests(count: usize, digest: &str, running: &[&str]) -> Output {
        let requests = vec![Request { arrival: 0.0, end: 1.0 }; count];
        let result_digests = running.iter().map(ToString::to_string).collect();
        Output::Requests(Requests { requests, digest: Some(digest.to_string()), result_digests })
    }

    fn steps(losses: &[&str], parameters: &[(&str, &str)]) -> Output {
        let steps = losses.iter().map(|loss| (0.0, loss.to_string())).collect();
        let parameters = parameters.iter().map(|(step, digest)| (step.to_string(), digest.to_string()));
        Output::Steps(Steps { steps, parameters_digest: parameters.collect(), ..Steps::default() })
    }

    #[test]
    fn the_common_beginning_counts() {
        let alone = requests(300, "x", &["a", "b", "c"]);
        assert_eq!(compare(&alone, &requests(200, "y", &["a", "b"])), Identity::Identical { compared: 2 });
        assert_eq!(compare(&alone, &requests(300, "x", &["a", "b", "c"])), Identity::Identical { compared: 4 });
        let alone = steps(&["1", "2", "3"], &[("2", "p"), ("40", "q")]);
        assert_eq!(compare(&alone, &steps(&["1", "2"], &[("2", "p")])), Identity::Identical { compared: 3 });
    }

    #[test]
    fn the_first_difference_is_named() {
        let found = compare(&requests(300, "x", &["a", "b", "c"]), &requests(300, "y", &["a", "d", "e"]));
        assert_eq!(found.in_words(), "different: the results up to digest 2 of 3 (d, alone b); 3 of 4 differ");
        let found = compare(&steps(&["1", "2"], &[]), &steps(&["1", "3", "4"], &[]));
        assert_eq!(found.in_words(), "different: the loss of step 2 (3, alone 2); 1 of 2 differ");
        let found = compare(&steps(&["1"], &[("20", "p")]), &steps(&["1"], &[("20", "r")]));
        assert_eq!(found.in_words(), "different: the parameters after step 20 (r, alone p); 1 of 2 differ");
        let same_digests = compare(&requests(2, "x", &[]), &requests(2, "y", &[]));
        assert!(same_digests.is_different());
    }

    #[test]
    fn tokens_are_compared_request_by_request() {
        use super::super::answers::Ended;
        use super::super::answers::tests::answer;
        let answers = |requests| Output::Answers(Answers { requests, ..Answers::default() });
        let all = || vec![answer(4, 0.0, 0.1, 0.1, 5), answer(5, 0.0, 0.1, 0.1, 6), answer(6, 0.0, 0.1, 0.1, 7)];
        let alone = answers(all());
        assert_eq!(compare(&alone, &answers(all())), Identity::Identical { compared: 3 });
        let mut other = all();
        other[1].tokens[2] = 99;
        other[2].tokens[0] = 98;
        let found = compare(&alone, &answers(other));
        assert_eq!(found.in_words(), "different: token 3 of request 5 (99, alone 2); 2 of 3 differ");
        let mut shorter = all();
        shorter[0].tokens.pop();
        let found = compare(&alone, &answers(shorter.clone()));
        assert_eq!(found.in_words(), "different: the number of tokens of request 4 (4, alone 5); 1 of 3 differ");
        shorter[0].ended = Ended::Stopped;
        assert_eq!(compare(&alone, &answers(shorter)), Identity::Identical { compared: 3 }, "as far as it came");
        assert!(matches!(compare(&alone, &answers(Vec::new())), Identity::Unknown { .. }));
    }

    #[test]
    fn nothing_in_common_is_not_the_same() {
        assert!(matches!(compare(&requests(2, "x", &[]), &requests(3, "x", &[])), Identity::Unknown { .. }));
        assert!(matches!(compare(&requests(2, "x", &[]), &steps(&["1"], &[])), Identity::Unknown { .. }));
    }
}
