//! Requests of another process to the writer of a trace: pause, resume, set a mark, record owners.
//!
//! The control part of the file is a panel with one request. The asking process holds a lock on the
//! file:
//!
//! 1. It fills in the request and passes the turn to the writer.
//! 2. A thread of the writer polls the panel and takes the request.
//! 3. The writer fills in its answer and passes the turn back.
//!
//! The content of the panel may be hostile or damaged. The writer copies a bounded text, and
//! answers an unknown request with [`Answer::Unknown`].

use std::sync::atomic::Ordering;
use std::sync::atomic::{AtomicU64, fence};

use crate::layout::control;

mod asker;
#[cfg(all(test, not(miri)))]
mod tests;

pub(crate) use asker::head;
pub use asker::{Asker, Busy};

/// Request of another process to the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Record no more allocations.
    Pause,
    /// Record allocations again.
    Resume,
    /// Set a mark of this name. At most [`control::TEXT_MAX`] bytes of it are passed on.
    Mark(String),
    /// Record who keeps each block.
    Owners,
    /// A request that this version does not know; only ever read.
    Unknown,
}

impl Request {
    fn number(&self) -> u64 {
        match self {
            Request::Unknown => 0,
            Request::Pause => 1,
            Request::Resume => 2,
            Request::Mark(_) => 3,
            Request::Owners => 4,
        }
    }

    fn text(&self) -> &str {
        match self {
            Request::Mark(name) => name,
            _ => "",
        }
    }
}

/// Answer of the writer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Answer {
    /// The writer does not know the request.
    Unknown = 0,
    /// The request is complete.
    Done = 1,
    /// The state asked for was set already.
    Already = 2,
    /// The request cannot be met in this process.
    Refused = 3,
}

/// The states of a request.
const IDLE: u64 = 0;
const ASKED: u64 = 1;
const TAKEN: u64 = 2;
const ANSWERED: u64 = 3;

/// Bits of a turn that hold the state.
const STATE: u64 = 3;

/// The control part of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    words: &'a [AtomicU64],
}

/// A request that was taken, to be answered by [`Panel::answer`].
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    turn: u64,
    /// The request, to be served by the writer.
    pub request: Request,
}

impl<'a> Panel<'a> {
    /// Returns the panel in the words of the part. Without words there is never a request.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Panel<'a> {
        Panel { words }
    }

    fn word(&self, at: usize) -> Option<&'a AtomicU64> {
        self.words.get(at / 8)
    }

    fn get(&self, at: usize) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn turn(&self) -> u64 {
        // Acquire: the words written before the turn was passed are seen.
        self.word(control::TURN)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Changes the turn; false if it has changed meanwhile.
    fn pass(&self, from: u64, to: u64) -> bool {
        // Release: the other side sees the words written before. Acquire: as in `turn`.
        let (done, not) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word(control::TURN)
            .is_some_and(|word| word.compare_exchange(from, to, done, not).is_ok())
    }

    /// Takes the request if there is one. Costs one load if there is none.
    #[inline]
    pub fn take(&self) -> Option<Taken> {
        let turn = self.turn();
        (turn & STATE == ASKED)
            .then(|| self.take_at(turn))
            .flatten()
    }

    #[cold]
    fn take_at(&self, turn: u64) -> Option<Taken> {
        // From this point the asking process no longer changes the request.
        if !self.pass(turn, turn & !STATE | TAKEN) {
            return None;
        }
        let request = match self.get(control::REQUEST) {
            1 => Request::Pause,
            2 => Request::Resume,
            3 => Request::Mark(self.text()),
            4 => Request::Owners,
            _ => Request::Unknown,
        };
        Some(Taken { turn, request })
    }

    /// Writes the answer and passes the turn back.
    pub fn answer(&self, taken: Taken, answer: Answer) {
        self.set(control::ANSWER, answer as u64);
        // This fails only if the turn was overwritten meanwhile. Then no process waits for this
        // answer.
        let _ = self.pass(taken.turn & !STATE | TAKEN, taken.turn & !STATE | ANSWERED);
    }

    /// Returns a copy of the text, bounded whatever its length word says.
    fn text(&self) -> String {
        let bytes = usize::try_from(self.get(control::TEXT_BYTES)).unwrap_or(usize::MAX);
        let bytes = bytes.min(control::TEXT_MAX);
        let words = self.words.get(control::TEXT / 8..).unwrap_or_default();
        let words = words.iter().take(bytes.div_ceil(8));
        let copied = words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let copied: Vec<u8> = copied.take(bytes).collect();
        String::from_utf8_lossy(&copied).into_owned()
    }

    /// Writes a request and passes the turn to the writer, who finds it complete. Returns the turn
    /// that identifies its answer. `None` while the writer still serves the request of a process
    /// that has ended.
    ///
    /// Only the process that holds the lock on the file calls this.
    fn ask(&self, request: &Request) -> Option<u64> {
        let before = self.turn();
        if before & STATE == TAKEN {
            return None;
        }
        let turn = (before & !STATE).wrapping_add(STATE + 1);
        // This process holds the lock, so the process that asked before has ended. Its request is
        // dropped if it was not taken.
        if !self.pass(before, turn | IDLE) {
            return None;
        }
        let text = request.text().as_bytes();
        let text = text.get(..control::TEXT_MAX).unwrap_or(text);
        self.set(control::REQUEST, request.number());
        self.set(control::TEXT_BYTES, text.len() as u64);
        for (index, chunk) in text.chunks(8).enumerate() {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(chunk)
                .for_each(|(to, from)| *to = *from);
            self.set(control::TEXT + index * 8, u64::from_le_bytes(word));
        }
        fence(Ordering::Release);
        self.pass(turn | IDLE, turn | ASKED).then_some(turn)
    }

    /// Returns the answer to the request with this turn, once there is one.
    fn answer_to(&self, turn: u64) -> Option<Answer> {
        (self.turn() == turn | ANSWERED).then(|| match self.get(control::ANSWER) {
            1 => Answer::Done,
            2 => Answer::Already,
            3 => Answer::Refused,
            _ => Answer::Unknown,
        })
    }

    /// Withdraws a request; false if the writer has taken it.
    fn take_back(&self, turn: u64) -> bool {
        self.pass(turn | ASKED, turn | IDLE)
    }
}
