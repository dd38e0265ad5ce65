//! Files over a socket.

use detshare_board::{Class, MOST_FILES, SocketError, Tenant, TenantView, peer, receive_fds, send_fds};
use rustix::io::{FdFlags, fcntl_getfd};
use std::os::unix::net::UnixStream;

#[test]
fn as_many_files_as_there_are_slots_travel_in_one_message() {
    let (one, other) = UnixStream::pair().expect("a pair");
    let tenant = Tenant::create(Class::Latency).expect("a group");
    let files = vec![tenant.file(); MOST_FILES];
    send_fds(&one, b"all of them", &files).expect("sent");
    let mut bytes = [0; 64];
    let received = receive_fds(&other, &mut bytes).expect("received");
    assert_eq!(&bytes[..received.bytes], b"all of them");
    assert_eq!(received.files.len(), MOST_FILES);
    for file in &received.files {
        assert!(fcntl_getfd(file).expect("open").contains(FdFlags::CLOEXEC));
        TenantView::map(file).expect("mapped");
    }
    let too_many = vec![tenant.file(); MOST_FILES + 1];
    assert!(matches!(send_fds(&one, b"x", &too_many), Err(SocketError::TooMany)));
}

#[test]
fn bytes_alone_travel_too() {
    let (one, other) = UnixStream::pair().expect("a pair");
    send_fds(&one, b"hello", &[]).expect("sent");
    let received = receive_fds(&other, &mut [0; 5]).expect("received");
    assert_eq!((received.bytes, received.files.len()), (5, 0));
    assert!(matches!(send_fds(&one, b"", &[]), Err(SocketError::Empty)));
}

#[test]
fn a_closed_socket_is_said_to_be_closed() {
    let (one, other) = UnixStream::pair().expect("a pair");
    drop(other);
    assert!(matches!(receive_fds(&one, &mut [0]), Err(SocketError::Closed)));
    assert!(matches!(send_fds(&one, b"x", &[]), Err(SocketError::Closed)));
}

#[test]
fn who_made_the_socket_is_the_peer() {
    let (one, _other) = UnixStream::pair().expect("a pair");
    assert_eq!(peer(&one).expect("known").pid, std::process::id());
}
