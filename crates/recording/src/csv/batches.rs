//! Blocks of lines, read by several threads and returned in their order.

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::blocks::Blocks;
use super::line::{Batch, Columns};
use crate::csv::Dialect;

/// Highest number of threads: the consumer of the events cannot keep more of them busy.
const THREADS: usize = 4;
/// Blocks that wait for each thread or for the consumer.
const WAITING: usize = 4;
/// Blocks up to which a thread is not worth its start.
const FEW: usize = 4;

/// A thread that reads lines.
struct Worker {
    blocks: Sender<Vec<u8>>,
    batches: Receiver<Batch>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts a thread; `None` if there can be no more threads.
    fn new(dialect: &'static Dialect, columns: Columns) -> Option<Worker> {
        let mut columns = Some(columns);
        let (blocks, inbox) = channel::<Vec<u8>>();
        let (outbox, batches) = channel();
        let work = move || {
            for block in inbox {
                if outbox
                    .send(Batch::of(&block, dialect, &mut columns))
                    .is_err()
                {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().spawn(work).ok()?;
        Some(Worker {
            blocks,
            batches,
            thread,
        })
    }
}

/// Batches of the blocks of a log, in order.
pub(super) struct Batches {
    blocks: Blocks,
    dialect: &'static Dialect,
    columns: Option<Columns>,
    /// Blocks that were read without threads.
    alone: usize,
    workers: Vec<Worker>,
    /// Blocks that were sent to threads; `taken` are the batches received from them.
    given: usize,
    taken: usize,
    /// The error that ended the reading after the batches.
    pub end: Option<io::Error>,
}

impl Batches {
    pub(super) fn new(blocks: Blocks, dialect: &'static Dialect) -> Batches {
        Batches {
            blocks,
            dialect,
            columns: None,
            alone: 0,
            workers: Vec::new(),
            given: 0,
            taken: 0,
            end: None,
        }
    }

    fn block(&mut self) -> Option<Vec<u8>> {
        match self.blocks.next()? {
            Ok(block) => Some(block),
            Err(error) => {
                self.end = Some(error);
                None
            }
        }
    }

    /// Starts threads, if there are cores for them.
    fn start(&mut self) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        if let Some(columns) = self.columns.as_ref().filter(|_| cores > 1) {
            let new = |_| Worker::new(self.dialect, columns.clone());
            self.workers = (0..cores.min(THREADS)).map_while(new).collect();
        }
    }
}

impl Iterator for Batches {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if self.workers.is_empty() {
            if self.alone == FEW {
                self.start();
            }
            self.alone += 1;
        }
        let workers = self.workers.len();
        if workers == 0 {
            let block = self.block()?;
            return Some(Batch::of(&block, self.dialect, &mut self.columns));
        }
        while self.given - self.taken < WAITING * workers {
            let Some(block) = self.block() else { break };
            let worker = self.workers.get(self.given % workers)?;
            // If the thread has ended, nothing can be received from it either.
            let _ = worker.blocks.send(block);
            self.given += 1;
        }
        if self.taken == self.given {
            return None;
        }
        let at = self.taken % workers;
        self.taken += 1;
        match self.workers.get(at)?.batches.recv() {
            Ok(batch) => Some(batch),
            Err(_) => match self.workers.swap_remove(at).thread.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => None,
            },
        }
    }
}
