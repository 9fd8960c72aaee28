//! Live bytes after each event, so that a query need not add up the events before it.

use rustc_hash::FxHashMap;

use crate::ledger::{Change, Ledger, Step, Sum};
use crate::recording::Recording;
use gpushim_trace::{Kind, Layer, Record};

/// Devices of which a recording keeps sums.
const DEVICES: u8 = 8;

type Levels = FxHashMap<(u8, Layer), i128>;

/// The bytes that are live on each device, in tensors and in device memory.
pub struct Live {
    ledger: Ledger,
    levels: Levels,
}

impl Live {
    /// State before the first event.
    ///
    /// Reads the recording once or twice: blocks that are freed without an allocation existed
    /// before.
    pub fn before(recording: &dyn Recording) -> Live {
        let first = recording.events().next();
        let older = recording.live().unwrap_or_default().into_iter();
        let older: Vec<_> = older
            .filter(|block| first.is_none_or(|first| block.ns < first.ns))
            .collect();
        let begin = |only| {
            let mut live = Live {
                ledger: Ledger::new(only),
                levels: Levels::default(),
            };
            let mut missing = Levels::default();
            let Live { ledger, levels } = &mut live;
            ledger.begin(&older, &mut |change| take(change, levels, &mut missing));
            (live, missing)
        };
        let (mut end, mut missing) = begin(None);
        let feed = |end: &mut Live, missing: &mut Levels| {
            let Live { ledger, levels } = end;
            for record in recording.events() {
                ledger.apply(&record, &mut |change| take(change, levels, missing));
            }
        };
        feed(&mut end, &mut missing);
        let mut only = None;
        if let Some(other) = end.ledger.other_only() {
            only = other;
            (end, missing) = begin(only);
            feed(&mut end, &mut missing);
        }
        // What the sums of the recording have more at the end than its blocks was there, too.
        for layer in [Layer::Device, Layer::Tensor] {
            for device in 0..DEVICES {
                let Some(sum) = recording.live_bytes(layer, device) else {
                    continue;
                };
                let known = end.levels.get(&(device, layer)).copied().unwrap_or(0);
                let missing = missing.entry((device, layer)).or_default();
                *missing += (i128::from(sum) - known - *missing).max(0);
            }
        }
        let (mut live, _) = begin(only);
        live.levels = missing;
        live
    }

    /// Applies the next event, and returns the live bytes of its device after it.
    ///
    /// The bytes are in tensors for an event of a tensor, else in device memory. `None` if the
    /// event neither allocates nor frees memory of these kinds.
    pub fn after(&mut self, record: &Record) -> Option<u64> {
        let Live { ledger, levels } = self;
        // Blocks that this change frees existed before.
        ledger.apply(record, &mut |change| {
            take(change, levels, &mut Levels::default());
        });
        let event = &record.event;
        let layer = event.class.layer();
        let is_block = matches!(
            event.kind,
            Kind::Alloc | Kind::Free | Kind::TensorAlloc | Kind::TensorFree
        );
        if !is_block || event.result != 0 || !matches!(layer, Layer::Device | Layer::Tensor) {
            return None;
        }
        let level = levels.get(&(ledger.ordinal_of(event.device), layer));
        Some(u64::try_from(level.copied().unwrap_or(0)).unwrap_or(0))
    }
}

/// Applies a change to the levels. `missing` gets the bytes that existed before the first event.
fn take(change: &Change, levels: &mut Levels, missing: &mut Levels) {
    change.steps(|device, sum, step, bytes| {
        let Sum::Live(layer) = sum else { return };
        let bytes = i128::from(bytes);
        let level = levels.entry((device, layer)).or_default();
        match step {
            Step::Rise => *level += bytes,
            Step::Fall => *level -= bytes,
            Step::FallUnseen => {
                *level -= bytes;
                *missing.entry((device, layer)).or_default() += bytes;
            }
            Step::WasThere => *missing.entry((device, layer)).or_default() += bytes,
            Step::Set => *level = bytes,
        }
    });
}
