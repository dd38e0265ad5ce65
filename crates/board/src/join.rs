//! How a tenant joins: what it and the daemon say to each other before the board speaks for itself.
//!
//! A tenant connects and says [`Hello`] with the file of its own group. The daemon answers [`Welcome`], with the file of
//! its group, and sends an [`Arrived`] with the file of every tenant that is there or comes later, for as long as the
//! connection lasts; when it ends, so does the tenant's place. Messages have a fixed size each, and whatever they hold is
//! checked: an answer is either well-formed or an error.

use crate::checked::{Class, Doubts, class};
use crate::layout::{LAYOUT, MAGIC, SLOTS};
use crate::slot::Generation;
use crate::socket::{SocketError, receive_fds, send_fds};
use crate::{Objective, entry::MOST_SMS};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Bytes of a text in a message; it is shorter, and the rest is zeros.
const TEXT: usize = 64;
const HELLO: usize = 320;
const WELCOME: usize = 32;
const ARRIVED: usize = 16;

/// Why a message could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The socket failed, or the other end closed it.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// It is none of these messages.
    #[error("the other end does not speak as DetShare does")]
    Garbled,
    /// Of another version.
    #[error("the other end has layout {found} of the board, this one {LAYOUT}: use tenants and daemon of one version")]
    Layout {
        /// Its layout.
        found: u32,
    },
    /// Another number of files came than belongs to the message.
    #[error("a message came with {found} files instead of {expected}")]
    Files {
        /// As many as belong to it.
        expected: usize,
        /// As many as came.
        found: usize,
    },
}

/// What a tenant says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// What it was started as; nothing leaves it to the daemon.
    pub class: Option<Class>,
    /// What people call it; empty leaves it to the daemon. See [`is_name`].
    pub name: String,
    /// What its users expect.
    pub objective: Objective,
    /// The memory that it limits itself to.
    pub memory: Option<u64>,
    /// Whether it asks for its long kernels to give way in the middle.
    pub block_level: bool,
    /// The model of its GPU; at most 63 bytes are sent.
    pub gpu: String,
    /// Tells one GPU from another, as in its group.
    pub gpu_id: u64,
    /// How many SMs the GPU has.
    pub width: u32,
    /// Which driver it uses: what is measured holds for one release of it. At most 63 bytes are sent.
    pub driver: String,
}

/// Whether a tenant can be called so: letters, digits, `.`, `_` and `-`, at most 63.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..TEXT).contains(&name.len()) && name.bytes().all(is_fine)
}

/// The daemon's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// The tenant has a slot; the daemon's group comes along.
    Accepted {
        /// Its number, below [`SLOTS`].
        slot: usize,
        /// Which owner of the slot it is.
        generation: Generation,
    },
    /// It has none.
    Refused(Refusal),
}

/// Why a tenant was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// All slots are taken.
    Full,
    /// Its group is none.
    Page,
    /// It could not be made out who it is.
    Unknown,
}

/// A tenant that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Its slot, below [`SLOTS`].
    pub slot: usize,
    /// Which owner of the slot it is.
    pub generation: Generation,
}

impl Hello {
    /// Says it, with the tenant's own group.
    pub fn send(&self, stream: &UnixStream, group: BorrowedFd<'_>) -> Result<(), JoinError> {
        let mut writer = Writer::new(HELLO);
        writer.u32(self.class.map_or(0, Class::number));
        writer.u32(self.width);
        let Objective { p99_ns, ttft_ns, tpot_ns } = self.objective;
        for number in [self.memory, p99_ns, ttft_ns, tpot_ns] {
            writer.u64(number.unwrap_or(0));
        }
        writer.u64(self.gpu_id);
        writer.u32(self.block_level.into());
        writer.text(&self.name);
        writer.text(&self.gpu);
        writer.text(&self.driver);
        Ok(send_fds(stream, &writer.finished(), &[group])?)
    }

    /// Hears it; the tenant's group comes along, not looked at yet.
    pub fn receive(stream: &UnixStream) -> Result<(Self, OwnedFd), JoinError> {
        let (bytes, files) = receive::<HELLO>(stream)?;
        let hello = Self::read(&bytes)?;
        let [group] = exactly(files)?;
        Ok((hello, group))
    }

    fn read(bytes: &[u8; HELLO]) -> Result<Self, JoinError> {
        let mut reader = Reader::new(bytes)?;
        let class = match reader.u32() {
            0 => None,
            number => Some(known_class(number)?),
        };
        let width = reader.u32();
        let [memory, p99_ns, ttft_ns, tpot_ns] = [(); 4].map(|()| Some(reader.u64()).filter(|number| *number != 0));
        let gpu_id = reader.u64();
        let block_level = match reader.u32() {
            0 => false,
            1 => true,
            _ => return Err(JoinError::Garbled),
        };
        let (name, gpu, driver) = (reader.text()?, reader.text()?, reader.text()?);
        if width > MOST_SMS || !(name.is_empty() || is_name(&name)) {
            return Err(JoinError::Garbled);
        }
        let objective = Objective { p99_ns, ttft_ns, tpot_ns };
        Ok(Self { class, name, objective, memory, block_level, gpu, gpu_id, width, driver })
    }
}

fn known_class(number: u32) -> Result<Class, JoinError> {
    let mut doubts = Doubts::NONE;
    let class = class(number, &mut doubts);
    if doubts.any() { Err(JoinError::Garbled) } else { Ok(class) }
}

impl Welcome {
    /// Says it, with the daemon's group if the tenant is taken in.
    pub fn send(self, stream: &UnixStream, group: BorrowedFd<'_>) -> Result<(), JoinError> {
        let mut writer = Writer::new(WELCOME);
        match self {
            Self::Accepted { slot, generation } => {
                writer.u32(0);
                writer.slot(slot, generation);
                Ok(send_fds(stream, &writer.finished(), &[group])?)
            }
            Self::Refused(refusal) => {
                writer.u32(refusal.number());
                Ok(send_fds(stream, &writer.finished(), &[])?)
            }
        }
    }

    /// Hears it; the daemon's group comes along if the tenant is taken in.
    pub fn receive(stream: &UnixStream) -> Result<(Self, Option<OwnedFd>), JoinError> {
        let (bytes, files) = receive::<WELCOME>(stream)?;
        let mut reader = Reader::new(&bytes)?;
        match reader.u32() {
            0 => {
                let (slot, generation) = reader.slot()?;
                let [group] = exactly(files)?;
                Ok((Self::Accepted { slot, generation }, Some(group)))
            }
            number => {
                let [] = exactly(files)?;
                Ok((Self::Refused(Refusal::of(number).ok_or(JoinError::Garbled)?), None))
            }
        }
    }
}

impl Refusal {
    const ALL: [Self; 3] = [Self::Full, Self::Page, Self::Unknown];

    const fn number(self) -> u32 {
        match self {
            Self::Full => 1,
            Self::Page => 2,
            Self::Unknown => 3,
        }
    }

    fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.number() == number)
    }
}

impl Arrived {
    /// Says it, with that tenant's group.
    pub fn send(self, stream: &UnixStream, group: BorrowedFd<'_>) -> Result<(), JoinError> {
        let mut bytes = [0; ARRIVED];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&u32::try_from(self.slot).unwrap_or(u32::MAX).to_le_bytes());
        bytes[12..].copy_from_slice(&self.generation.number().to_le_bytes());
        Ok(send_fds(stream, &bytes, &[group])?)
    }

    /// Waits for the next one; that tenant's group comes along, not looked at yet.
    pub fn receive(stream: &UnixStream) -> Result<(Self, OwnedFd), JoinError> {
        let (bytes, files) = receive::<ARRIVED>(stream)?;
        let mut reader = Reader { left: &bytes };
        if reader.u64() != MAGIC {
            return Err(JoinError::Garbled);
        }
        let (slot, generation) = reader.slot()?;
        let [group] = exactly(files)?;
        Ok((Self { slot, generation }, group))
    }
}

/// A whole message with its files. A stream may hand it over in parts; the files come with the first.
fn receive<const SIZE: usize>(stream: &UnixStream) -> Result<([u8; SIZE], Vec<OwnedFd>), JoinError> {
    let mut bytes = [0; SIZE];
    let mut files = Vec::new();
    let mut filled = 0;
    while filled < SIZE {
        let received = receive_fds(stream, &mut bytes[filled..])?;
        filled += received.bytes;
        files.extend(received.files);
    }
    Ok((bytes, files))
}

fn exactly<const COUNT: usize>(files: Vec<OwnedFd>) -> Result<[OwnedFd; COUNT], JoinError> {
    files.try_into().map_err(|files: Vec<OwnedFd>| JoinError::Files { expected: COUNT, found: files.len() })
}

/// Puts numbers into a message behind its head.
struct Writer {
    bytes: Vec<u8>,
    size: usize,
}

impl Writer {
    fn new(size: usize) -> Self {
        let mut writer = Self { bytes: Vec::with_capacity(size), size };
        writer.u64(MAGIC);
        writer.u32(LAYOUT);
        writer
    }

    fn u32(&mut self, number: u32) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn slot(&mut self, slot: usize, generation: Generation) {
        self.u32(u32::try_from(slot).unwrap_or(u32::MAX));
        self.u32(generation.number());
    }

    fn text(&mut self, text: &str) {
        let mut end = text.len().min(TEXT - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes.extend(text[..end].bytes());
        self.bytes.resize(self.bytes.len() + TEXT - end, 0);
    }

    fn finished(mut self) -> Vec<u8> {
        debug_assert!(self.bytes.len() <= self.size, "the message has outgrown its size");
        self.bytes.resize(self.size, 0);
        self.bytes
    }
}

/// Takes numbers out of a message. The sizes above leave room for all that is read.
struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, JoinError> {
        let mut reader = Self { left: bytes };
        if reader.u64() != MAGIC {
            return Err(JoinError::Garbled);
        }
        match reader.u32() {
            LAYOUT => Ok(reader),
            found => Err(JoinError::Layout { found }),
        }
    }

    fn take<const SIZE: usize>(&mut self) -> [u8; SIZE] {
        match self.left.split_first_chunk() {
            Some((taken, left)) => {
                self.left = left;
                *taken
            }
            None => [0; SIZE],
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn slot(&mut self) -> Result<(usize, Generation), JoinError> {
        let slot = usize::try_from(self.u32()).ok().filter(|slot| *slot < SLOTS).ok_or(JoinError::Garbled)?;
        Ok((slot, Generation::from_number(self.u32())))
    }

    fn text(&mut self) -> Result<String, JoinError> {
        let bytes = self.take::<TEXT>();
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(JoinError::Garbled)?;
        let text = core::str::from_utf8(&bytes[..end]).map_err(|_| JoinError::Garbled)?;
        if text.chars().any(char::is_control) { Err(JoinError::Garbled) } else { Ok(text.into()) }
    }
}
