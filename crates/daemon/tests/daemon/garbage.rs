//! What no tenant says: it is turned away, nothing is left of it, and others are not disturbed.

use crate::PATIENCE;
use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::until;
use detshare_board::join::{Refusal, Welcome};
use detshare_board::{Class, Tenant, send_fds};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A tenant's group has so many bytes at least.
const PAGE: u64 = detshare_board::TENANT_BYTES as u64;

fn connect(folder: &Path) -> UnixStream {
    let stream = UnixStream::connect(folder.join("tenants.sock")).expect("a daemon listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
}

/// Reads to the end; says whether a refusal was all that came.
fn is_turned_away(mut stream: &UnixStream) -> bool {
    let refused = match Welcome::receive(stream) {
        Ok((Welcome::Refused(_), None)) => true,
        Ok((Welcome::Accepted { .. } | Welcome::Refused(_), _)) => false,
        // It may be closed without a word, with our own words unread.
        Err(_) => true,
    };
    let mut rest = Vec::new();
    // A reset is an end too.
    _ = stream.read_to_end(&mut rest);
    refused && rest.is_empty()
}

/// Always the same numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("small")
    }
}

fn memory_file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd");
    ftruncate(&file, bytes).expect("memory");
    fcntl_add_seals(&file, seals).expect("sealed");
    file
}

/// What a good hello looks like on the wire.
fn good_bytes(page: &Tenant) -> Vec<u8> {
    let (one, mut other) = UnixStream::pair().expect("a pair");
    hello("good").send(&one, page.file()).expect("sent");
    drop(one);
    let mut bytes = Vec::new();
    other.read_to_end(&mut bytes).expect("read");
    bytes
}

#[test]
fn random_bytes_and_files() {
    let house = House::new();
    let folder = house.run_folder();
    let bystander = TestTenant::join(&folder, &hello("bystander")).expect("taken in");
    let page = Tenant::create(Class::Latency).expect("a group");
    let good = good_bytes(&page);
    let (files, groups) = (house.open_files(), house.mapped_groups());
    let null = std::fs::File::open("/dev/null").expect("opened");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let bytes = match round % 3 {
            // Nothing of ours.
            0 => {
                let count = 1 + numbers.below(600);
                numbers.bytes(count)
            }
            // A good one that is cut.
            1 => good[..1 + numbers.below(good.len() - 1)].to_vec(),
            // A good one with something wrong in its head or its numbers; names may be anything.
            _ => {
                let mut bytes = good.clone();
                bytes[numbers.below(12)] ^= 0x5a;
                bytes
            }
        };
        let file: BorrowedFd<'_> = if round % 2 == 0 { null.as_fd() } else { page.file() };
        let count = [0, 1, 2, 65][numbers.below(4)];
        let stream = connect(&folder);
        send_fds(&stream, &bytes, &vec![file; count]).expect("sent");
        assert!(is_turned_away(&stream), "round {round}: {bytes:?} with {count} files");
    }
    assert_eq!(bystander.occupants(), 1);
    assert_eq!(house.client().tenants().expect("answered").len(), 1);
    until("nothing is left open", || (house.open_files() == files).then_some(()));
    assert_eq!(house.mapped_groups(), groups);
}

#[test]
fn pages_that_are_none() {
    let house = House::new();
    let folder = house.run_folder();
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    let (pipe, _other_end) = rustix::pipe::pipe().expect("a pipe");
    let (socket, _peer) = UnixStream::pair().expect("a pair");
    let group = detshare_board::Daemon::create().expect("a group");
    let files: Vec<(&str, OwnedFd)> = vec![
        ("a device", std::fs::File::open("/dev/zero").expect("opened").into()),
        ("a pipe", pipe),
        ("a socket", socket.into()),
        ("a folder", std::fs::File::open("/").expect("opened").into()),
        ("a file", tempfile::tempfile().expect("made").into()),
        ("memory that is not sealed", memory_file(PAGE, SealFlags::empty())),
        ("memory that can shrink", memory_file(PAGE, SealFlags::GROW | SealFlags::FUTURE_WRITE)),
        ("memory of zeros", memory_file(PAGE, all)),
        ("no memory at all", memory_file(0, all)),
        ("a daemon's group", group.file().try_clone_to_owned().expect("cloned")),
    ];
    for (what, file) in files {
        let stream = connect(&folder);
        hello("forger").send(&stream, file.as_fd()).expect("sent");
        let (answer, _) = Welcome::receive(&stream).expect("an answer");
        assert_eq!(answer, Welcome::Refused(Refusal::Page), "{what}");
    }
    for files in [0, 2] {
        let page = Tenant::create(Class::Latency).expect("a group");
        let stream = connect(&folder);
        send_fds(&stream, &good_bytes(&page), &vec![page.file(); files]).expect("sent");
        assert!(is_turned_away(&stream), "{files} files");
    }
    TestTenant::join(&folder, &hello("honest")).expect("taken in");
}

#[test]
fn the_silent_hold_up_nobody() {
    let house = House::new();
    let folder = house.run_folder();
    let silent: Vec<UnixStream> = (0..100).map(|_| connect(&folder)).collect();
    TestTenant::join(&folder, &hello("quick")).expect("taken in");
    // They are told when their time is over.
    silent.iter().for_each(|stream| assert!(is_turned_away(stream)));
}

#[test]
fn more_connections_than_there_can_be() {
    let house = House::new();
    let folder = house.run_folder();
    let files = house.open_files();
    let crowd: Vec<UnixStream> = (0..400).map(|_| connect(&folder)).collect();
    crowd.iter().for_each(|stream| assert!(is_turned_away(stream)));
    drop(crowd);
    until("all is closed", || (house.open_files() == files).then_some(()));
    TestTenant::join(&folder, &hello("after")).expect("taken in");
}

#[test]
fn who_goes_without_a_word_is_not_refused() {
    let house = House::new();
    drop(connect(&house.run_folder()));
    drop(TestTenant::join(&house.run_folder(), &hello("after")).expect("taken in"));
    let metrics = house.client().metrics().expect("answered");
    assert!(metrics.contains("detshare_refused_total 0\n"), "{metrics}");
}

#[test]
fn a_tenant_that_speaks_up_is_sent_away() {
    let house = House::new();
    let page = Tenant::create(Class::Latency).expect("a group");
    let mut stream = connect(&house.run_folder());
    hello("talker").send(&stream, page.file()).expect("sent");
    assert!(matches!(Welcome::receive(&stream), Ok((Welcome::Accepted { .. }, Some(_)))));
    stream.write_all(b"and another thing").expect("sent");
    house.until_count(0);
}
