//! What another process asks of the one that writes a trace: to pause, to resume, to set a mark.
//!
//! The control part of the file is a panel with one request. The asking process, which holds a lock on the file, fills in
//! the request and gives the turn to the writer; a thread of the writer looks at the panel now and then, takes the
//! request, and gives the turn back with its answer. What is in the panel may be hostile or damaged: the writer copies
//! a bounded text, does what it knows, and answers to the rest that it does not know it.

use std::sync::atomic::Ordering;
use std::sync::atomic::{AtomicU64, fence};

use crate::layout::control;

mod asker;
#[cfg(all(test, not(miri)))]
mod tests;

pub(crate) use asker::head;
pub use asker::{Asker, Busy};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// To record no more allocations.
    Pause,
    /// To record them again.
    Resume,
    /// To set a mark of this name; at most [`control::TEXT_MAX`] bytes of it are passed on.
    Mark(String),
    /// To record who keeps each block.
    Owners,
    /// Something that this version does not know; only ever read.
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

/// What the writer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Answer {
    /// It does not know the request.
    Unknown = 0,
    /// It is done.
    Done = 1,
    /// It was so already.
    Already = 2,
    /// It cannot be done in this process.
    Refused = 3,
}

/// The states of a request.
const IDLE: u64 = 0;
const ASKED: u64 = 1;
const TAKEN: u64 = 2;
const ANSWERED: u64 = 3;

/// The bits of a turn that hold the state.
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
    /// What is asked for.
    pub request: Request,
}

impl<'a> Panel<'a> {
    /// Of the words of the part. Without them nothing is ever asked.
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

    /// The word with the turn.
    fn turn(&self) -> u64 {
        // Acquire: what comes with the turn is seen.
        self.word(control::TURN)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Changes the turn; false if it is another one by now.
    fn pass(&self, from: u64, to: u64) -> bool {
        // Release: what comes with the turn is seen by the other side. Acquire: as in `turn`.
        let (done, not) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word(control::TURN)
            .is_some_and(|word| word.compare_exchange(from, to, done, not).is_ok())
    }

    /// Takes the request if there is one. One load if there is none.
    #[inline]
    pub fn take(&self) -> Option<Taken> {
        let turn = self.turn();
        (turn & STATE == ASKED)
            .then(|| self.take_at(turn))
            .flatten()
    }

    #[cold]
    fn take_at(&self, turn: u64) -> Option<Taken> {
        // From now on the asking process leaves the request alone.
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

    /// Answers a request.
    pub fn answer(&self, taken: Taken, answer: Answer) {
        self.set(control::ANSWER, answer as u64);
        // It fails only if the turn was overwritten meanwhile: then no process waits for this answer.
        let _ = self.pass(taken.turn & !STATE | TAKEN, taken.turn & !STATE | ANSWERED);
    }

    /// A copy of the text, bounded whatever its length says.
    fn text(&self) -> String {
        let bytes = usize::try_from(self.get(control::TEXT_BYTES)).unwrap_or(usize::MAX);
        let bytes = bytes.min(control::TEXT_MAX);
        let words = self.words.get(control::TEXT / 8..).unwrap_or_default();
        let words = words.iter().take(bytes.div_ceil(8));
        let copied = words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let copied: Vec<u8> = copied.take(bytes).collect();
        String::from_utf8_lossy(&copied).into_owned()
    }

    /// Puts a request down and gives the turn to the writer, who finds it whole. Returns the turn by which its answer is
    /// known; `None` while the writer still serves the request of a process that has ended.
    ///
    /// Only the process that holds the lock on the file asks.
    fn ask(&self, request: &Request) -> Option<u64> {
        let before = self.turn();
        if before & STATE == TAKEN {
            return None;
        }
        let turn = (before & !STATE).wrapping_add(STATE + 1);
        // The lock is ours, so the process that asked before has ended: its request is dropped if it was not taken.
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

    /// The answer to the request with this turn, once it is there.
    fn answer_to(&self, turn: u64) -> Option<Answer> {
        (self.turn() == turn | ANSWERED).then(|| match self.get(control::ANSWER) {
            1 => Answer::Done,
            2 => Answer::Already,
            _ => Answer::Unknown,
        })
    }

    /// Takes a request back; false if the writer has taken it.
    fn take_back(&self, turn: u64) -> bool {
        self.pass(turn | ASKED, turn | IDLE)
    }
}
