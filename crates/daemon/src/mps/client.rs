//! Who is who in MPS's lists: a process in a container has a pid there, too, and may be listed by that.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A client, as MPS lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    pid: u32,
    /// The pid namespace that is named beside it, by its number.
    namespace: Option<u64>,
}

impl Client {
    /// A line of a list that begins with pids, or of the table of `ps`; titles begin with none.
    fn of_line(line: &str) -> Option<Self> {
        const NAMESPACE: usize = 4;
        let mut words = line.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        Some(Self { pid, namespace: words.nth(NAMESPACE - 1).and_then(|word| word.parse().ok()) })
    }

    /// All that a list names.
    pub(super) fn all(list: &str) -> impl Iterator<Item = Self> {
        list.lines().filter_map(Self::of_line)
    }
}

/// What a process may be listed as.
#[derive(Debug)]
pub(super) struct Known {
    /// Its pid here.
    pid: u32,
    /// Its own pid namespace, and its pid there.
    own: Option<(u64, u32)>,
}

impl Known {
    pub(super) fn of(pid: u32) -> Self {
        let own = || {
            let namespace = fs::metadata(format!("/proc/{pid}/ns/pid")).ok()?.ino();
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            // From our namespace down to its own.
            let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            Some((namespace, pids.split_whitespace().next_back()?.parse().ok()?))
        };
        Self { pid, own: own() }
    }

    pub(super) fn is_among(&self, clients: &BTreeSet<Client>) -> bool {
        let is_it = |client: &Client| {
            client.pid == self.pid
                || self.own.is_some_and(|(namespace, pid)| (client.namespace, client.pid) == (Some(namespace), pid))
        };
        clients.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(list: &str) -> BTreeSet<Client> {
        Client::all(list).collect()
    }

    #[test]
    fn lists_and_tables_are_read() {
        assert_eq!(clients("7\n\n8\n").len(), 2);
        assert_eq!(clients("Server 12 not found\n-4\n99999999999\n"), BTreeSet::new());
        let table = "PID       ID    SERVER    DEVICE             NAMESPACE    COMMAND\n\
                     9741      0     6472      GPU-cb213853-ca6   4026531836   ./train\n";
        assert_eq!(clients(table), BTreeSet::from([Client { pid: 9741, namespace: Some(4_026_531_836) }]));
    }

    #[test]
    fn a_process_is_known_by_either_pid() {
        let contained = Known { pid: 500, own: Some((44, 7)) };
        assert!(contained.is_among(&clients("500\n")));
        assert!(contained.is_among(&clients("7 0 1 GPU-0 44 ./train\n")));
        assert!(!contained.is_among(&clients("7 0 1 GPU-0 45 ./train\n8 0 1 GPU-0 44 ./train\n")), "another one's");
        assert!(!contained.is_among(&clients("7\n")), "whose it is was not said");
    }

    #[test]
    fn what_is_read_of_ourselves_is_right() {
        let ourselves = Known::of(std::process::id());
        assert!(ourselves.own.is_some_and(|(_, pid)| pid == std::process::id()), "{ourselves:?}");
        assert!(Known::of(u32::MAX).own.is_none());
    }
}
