//! Reads a recording on one thread while others work on its events.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::Recording;
use gpushim_trace::Record;

/// Events that are passed on together.
const BATCH: usize = 4096;
/// Highest number of batches that wait for the slowest reader, to bound the memory.
const AHEAD: usize = 8;

/// Works on the events of a recording.
pub trait Reader: Send {
    /// Takes the next events, in the order of time.
    fn read(&mut self, records: &[Record]);
}

/// Reads a recording once and passes all events to each reader, each on its own thread.
pub fn read(recording: &dyn Recording, readers: &mut [&mut dyn Reader]) {
    thread::scope(|scope| {
        let mut senders: Vec<SyncSender<Arc<Vec<Record>>>> = Vec::new();
        for reader in readers {
            let (sender, receiver) = sync_channel::<Arc<Vec<Record>>>(AHEAD);
            senders.push(sender);
            scope.spawn(move || receiver.iter().for_each(|batch| reader.read(&batch)));
        }
        let mut events = recording.events();
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            batch.extend(events.by_ref().take(BATCH));
            if batch.is_empty() {
                break;
            }
            let batch = Arc::new(batch);
            for sender in &senders {
                // A reader that ended early has panicked; the scope passes the panic on.
                let _ = sender.send(Arc::clone(&batch));
            }
        }
    });
}
