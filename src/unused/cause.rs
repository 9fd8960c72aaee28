//! The cause of memory that was reserved and not used.

use super::passed_over::{PassedOver, passed_over};
use super::replays::Replays;
use crate::ledger::Focus;
use crate::output::units::{bytes, count};
use crate::recording::{CallSite, Names, Recording};
use crate::requests::{Changed, Requests};

/// Part of the unused memory (1/`EXPLAINS`) that a cause must save to explain it.
const EXPLAINS: u64 = 2;

/// The reason for which memory is reserved and not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Freed blocks wait for streams that use them.
    Waiting,
    /// Pools of graphs or of the program have caches of their own.
    Pools,
    /// Streams have caches of their own.
    Streams,
}

/// The cause of memory that is reserved and not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The reason that explains it.
    pub reason: Reason,
    /// Bytes that would be reserved without it, by replay.
    pub would: u64,
    /// Difference between the reserved bytes and `would`.
    pub saves: u64,
    /// The blocks that wait, if there are any.
    pub waiting: PassedOver,
}

impl Cause {
    /// Finds the cause on a device of which `unused` bytes were reserved and not used, and
    /// `reserved` bytes at most were reserved.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        replays: &Replays,
        unused: u64,
        reserved: u64,
    ) -> Option<Cause> {
        let least = (unused / EXPLAINS).max(1);
        let cause = |reason, would: u64| {
            let saves = reserved.checked_sub(would).filter(|saves| *saves >= least);
            saves.map(|saves| Cause {
                reason,
                would,
                saves,
                waiting: PassedOver::default(),
            })
        };
        let requests = &replays.requests;
        let without: [(Reason, bool, Changed); 3] = [
            (
                Reason::Waiting,
                requests.has_waiting(),
                Requests::without_waiting,
            ),
            (Reason::Pools, requests.has_pools(), Requests::in_one_pool),
            (
                Reason::Streams,
                requests.has_streams(),
                Requests::on_one_stream,
            ),
        ];
        if reserved.saturating_sub(replays.reserved) >= least {
            // A replay without waiting reserves less: the recording does not show how long blocks
            // waited.
            let waiting = passed_over(recording, focus);
            let cause = cause(Reason::Waiting, replays.reserved);
            return cause
                .filter(|_| waiting.bytes >= least)
                .map(|cause| Cause { waiting, ..cause });
        }
        let mut without = without.into_iter().filter(|(_, has, _)| *has);
        let mut found = without
            .find_map(|(reason, _, change)| cause(reason, replays.with(&change(requests))))?;
        if found.reason == Reason::Waiting {
            found.waiting = passed_over(recording, focus);
        }
        Some(found)
    }

    /// Returns the call site of the blocks, if it is known.
    pub fn site(&self, names: &mut dyn Names) -> Option<CallSite> {
        (self.waiting.stack != 0).then(|| CallSite::of(names, self.waiting.stack))
    }

    /// Returns it in a sentence, with the call site.
    pub fn sentence(&self, site: Option<&CallSite>) -> String {
        let blocks = match self.waiting.blocks {
            0 => String::new(),
            number => format!(
                ": {} of them, {}, were free when more was reserved",
                count(number),
                bytes(self.waiting.bytes)
            ),
        };
        match (self.reason, site) {
            (Reason::Waiting, Some(site)) => format!(
                "Freed blocks of {} wait for a stream that uses them (record_stream){blocks}.",
                site.in_a_sentence()
            ),
            (Reason::Waiting, None) => {
                format!("Freed blocks wait for streams that use them (record_stream){blocks}.")
            }
            (Reason::Pools, _) => {
                "Pools of CUDA graphs or of the program (torch.cuda.MemPool) keep free memory of their own."
                    .to_string()
            }
            (Reason::Streams, _) => "Each stream keeps free memory of its own.".to_string(),
        }
    }

    /// Returns advice against it, and the effect of the advice.
    pub fn fix(&self) -> String {
        let what = match self.reason {
            Reason::Waiting => {
                "make the next block only when the stream is done with the last one, or fill two buffers in turn"
            }
            Reason::Pools => "let graphs share one pool (torch.cuda.graph_pool_handle())",
            Reason::Streams => "allocate on one stream",
        };
        format!(
            "{what}: {} would be reserved, {} less (by replay)",
            bytes(self.would),
            bytes(self.saves)
        )
    }
}
