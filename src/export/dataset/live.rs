//! Live bytes after each event, so that a query need not add up the events before it.

use crate::ledger::{Account, Level};
use crate::recording::Recording;
use gpushim_trace::{Kind, Layer, LiveBlock, Record};

/// The bytes that are live on each device, in tensors and in device memory.
pub struct Live {
    /// Sums after the last event, which know the memory from before the first one.
    whole: Account,
    account: Account,
}

impl Live {
    /// State before the first event.
    ///
    /// Reads the recording once or twice: blocks that are freed without an allocation existed
    /// before.
    pub fn before(recording: &dyn Recording) -> Live {
        let (older, first) = recording.older();
        let whole = |only| {
            let mut account = begun(only, &older, first.as_ref());
            recording.events().for_each(|record| account.feed(&record));
            account
        };
        let (mut only, mut end) = (None, whole(None));
        if let Some(other) = end.ledger().other_only() {
            (only, end) = (other, whole(other));
        }
        // What the sums of the recording have more at the end than its blocks was there, too.
        for (device, sums) in &mut end.devices {
            for layer in [Layer::Device, Layer::Tensor] {
                if let Some(bytes) = recording.live_bytes(layer, *device) {
                    sums.live_at_end(layer, bytes);
                }
            }
        }
        Live {
            whole: end,
            account: begun(only, &older, first.as_ref()),
        }
    }

    /// Applies the next event, and returns the live bytes of its device after it.
    ///
    /// The bytes are in tensors for an event of a tensor, else in device memory. `None` if the
    /// event neither allocates nor frees memory of these kinds.
    pub fn after(&mut self, record: &Record) -> Option<u64> {
        self.account.feed(record);
        let event = &record.event;
        let layer = event.class.layer();
        let is_block = matches!(
            event.kind,
            Kind::Alloc | Kind::Free | Kind::TensorAlloc | Kind::TensorFree
        );
        if !is_block || event.result != 0 || !matches!(layer, Layer::Device | Layer::Tensor) {
            return None;
        }
        let device = self.account.ledger().ordinal_of(event.device);
        let level = |account: &Account| {
            let mut devices = account.devices.iter();
            let sums = devices.find(|(of, _)| *of == device).map(|(_, sums)| sums);
            sums.map_or(Level::default(), |sums| match layer {
                Layer::Tensor => sums.tensors,
                _ => sums.requested,
            })
        };
        // Blocks that later events free existed before.
        let (now, whole) = (level(&self.account), level(&self.whole));
        let unseen = whole.start().saturating_sub(now.start());
        Some(now.end().saturating_add(unseen))
    }
}

/// Makes sums before the first event, with the blocks that are older.
fn begun(only: Option<u8>, older: &[LiveBlock], first: Option<&Record>) -> Account {
    let mut account = Account::of_only(only);
    if let Some(first) = first {
        account.begin(older, first, |_| {});
    }
    account
}
