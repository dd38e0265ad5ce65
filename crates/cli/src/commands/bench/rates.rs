//! What LLM servers are to be sent at each load, found out without measuring anything: later runs are given it with `--rates`,
//! and whoever plans them knows how long so many requests take.

use super::json;
use super::replay::Replay;
use crate::table::{self, Align};
use serde::Serialize;

/// Each server at each load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rates {
    rates: Vec<Rate>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Rate {
    program: &'static str,
    load: Option<f64>,
    per_second: f64,
    /// How many it answered in a second when all came at once.
    saturated: Option<f64>,
}

const HEADINGS: [&str; 4] = ["load", "server", "requests/s", "with all at once"];

impl Rates {
    pub(crate) fn of(replays: &[Replay]) -> Self {
        let rate = |&Replay { program, load, per_second, saturated, .. }: &Replay| Rate {
            program,
            load,
            per_second,
            saturated,
        };
        Self { rates: replays.iter().map(rate).collect() }
    }

    pub(crate) fn json(&self) -> String {
        json::text(self)
    }

    pub(crate) fn csv(&self) -> String {
        table::csv(HEADINGS, &self.rows(|rate| rate.to_string()))
    }

    /// For people, with the flags that say the same.
    pub(crate) fn table(&self) -> String {
        let aligned = [Align::Right, Align::Left, Align::Right, Align::Right];
        let mut text = table::columns(
            std::array::from_fn(|column| (HEADINGS[column], aligned[column])),
            &self.rows(|rate| format!("{rate:.4}")),
        );
        let mut loads: Vec<f64> = Vec::new();
        for load in self.rates.iter().filter_map(|rate| rate.load) {
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        for load in loads {
            let of_load = self.rates.iter().filter(|rate| rate.load == Some(load));
            let rates: Vec<String> = of_load.map(|rate| format!("{:.6}", rate.per_second)).collect();
            text.push_str(&format!("--load {load} --rates {}\n", rates.join(",")));
        }
        text
    }

    fn rows(&self, number: impl Fn(f64) -> String) -> Vec<[String; HEADINGS.len()]> {
        let one = |rate: &Rate| {
            [
                rate.load.map_or_else(String::new, |load| load.to_string()),
                rate.program.to_string(),
                number(rate.per_second),
                rate.saturated.map_or_else(String::new, &number),
            ]
        };
        self.rates.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::replay::tests::replay;
    use super::*;

    #[test]
    fn rates_come_with_the_flags_that_say_the_same() {
        let mut at_once = replay(None);
        at_once.saturated = Some(9.0);
        let at = |load, per_second| at_once.at_rate(per_second, 30).of_load(Some(load));
        let found = Rates::of(&[at(0.5, 0.25), at(0.7, 1.0 / 3.0), at(0.5, 4.0)]);
        let table = found.table();
        assert!(table.contains("--load 0.5 --rates 0.250000,4.000000\n--load 0.7 --rates 0.333333\n"), "{table}");
        assert_eq!(found.csv().lines().nth(1), Some("0.5,chat,0.25,9"));
        let read: serde_json::Value = serde_json::from_str(&found.json()).unwrap();
        assert_eq!((&read["rates"][1]["load"], &read["rates"][2]["per_second"]), (&0.7.into(), &4.0.into()));
    }
}
