//! Selection of events by conditions.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Result, failed};
use crate::recording::{Frame, Names, Recording};
use gpushim_trace::{Kind, Record};

/// Conditions on events; those that are not given hold for all.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Filter {
    /// Only these kinds, for example `alloc,free`.
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    kind: Vec<Kind>,
    /// Only of this size: `4096`, `1M..`, `..64K`, `1M..2M` (both ends included).
    #[arg(long, value_name = "MIN..MAX", value_parser = size)]
    size: Option<Between>,
    /// Only of this time, in seconds since the start: `1.5..2`, `10..`, `..0.5`.
    #[arg(long, value_name = "FROM..TO", value_parser = time)]
    time: Option<Between>,
    /// Only of this thread.
    #[arg(long, value_name = "ID")]
    thread: Option<u32>,
    /// Only of this stream: its handle, 0 is the default stream.
    #[arg(long, value_name = "HANDLE", value_parser = number)]
    stream: Option<u64>,
    /// Only of this device.
    #[arg(long, value_name = "N")]
    gpu: Option<u8>,
    /// Only of blocks in which this address lies.
    #[arg(long, value_name = "ADDRESS", value_parser = number)]
    address: Option<u64>,
    /// Only with a function in the call stack whose name or file contains this.
    #[arg(long, value_name = "TEXT")]
    in_stack: Option<String>,
    /// Only while a range whose name contains this was open on the thread.
    #[arg(long, value_name = "TEXT")]
    range: Option<String>,
}

/// A range of values that includes both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Between {
    least: u64,
    most: u64,
}

impl Between {
    fn holds(self, value: u64) -> bool {
        (self.least..=self.most).contains(&value)
    }
}

fn kind(name: &str) -> Result<Kind> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| {
            let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            failed!("expected one of {}", names.join(", "))
        })
}

fn size(text: &str) -> Result<Between> {
    between(text, gpushim_config::size)
        .ok_or_else(|| failed!("expected a size like 4096, 1M.. or 1M..2M"))
}

fn time(text: &str) -> Result<Between> {
    let ns = |text: &str| {
        let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok()?;
        // A time beyond this is none: 317 years.
        (0.0..1e10)
            .contains(&seconds)
            .then_some((seconds * 1e9) as u64)
    };
    let between = between(text, ns).filter(|_| text.contains(".."));
    between.ok_or_else(|| failed!("expected seconds like 1.5..2, 10.. or ..0.5"))
}

/// `A..B`, either end left out for no limit, or one value.
fn between(text: &str, value: impl Fn(&str) -> Option<u64>) -> Option<Between> {
    let end = |text: &str, otherwise| match text {
        "" => Some(otherwise),
        text => value(text),
    };
    let (least, most) = match text.split_once("..") {
        Some((from, to)) => (end(from, 0)?, end(to, u64::MAX)?),
        None => (value(text)?, value(text)?),
    };
    (least <= most).then_some(Between { least, most })
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| failed!("expected a number like 140737488355328 or 0x7fff80000000"))
}

/// Applies a filter to the events of a recording, from the first to the last.
pub struct Wanted<'a> {
    filter: &'a Filter,
    recording: &'a dyn Recording,
    names: Option<Box<dyn Names + 'a>>,
    /// Cached answers by stack: true if the stack has the wanted function, or (`in_range`) the
    /// wanted range.
    in_stack: FxHashMap<u32, bool>,
    in_range: FxHashMap<u32, bool>,
    /// The ranges that are open on each thread.
    open: FxHashMap<u32, u32>,
    /// The thread that began one last: threads without ranges of their own work for it.
    last: u32,
    /// Live tensors of the stream that is looked for, by device and address: their frees name no
    /// stream.
    tensors: FxHashSet<(u8, u64)>,
}

impl<'a> Wanted<'a> {
    /// All events are yet to come.
    pub fn new(filter: &'a Filter, recording: &'a dyn Recording) -> Wanted<'a> {
        Wanted {
            filter,
            recording,
            names: filter.in_stack.as_ref().map(|_| recording.names()),
            in_stack: FxHashMap::default(),
            in_range: FxHashMap::default(),
            open: FxHashMap::default(),
            last: 0,
            tensors: FxHashSet::default(),
        }
    }

    /// True if the filter wants this event. Must be called for each event, in order.
    pub fn is(&mut self, record: &Record) -> bool {
        let (filter, event) = (self.filter, &record.event);
        if matches!(event.kind, Kind::RangePush | Kind::RangePop) {
            self.open.insert(event.thread, event.stack);
            if event.kind == Kind::RangePush {
                self.last = event.thread;
            }
        }
        let is_on_stream = filter
            .stream
            .is_none_or(|stream| self.is_on(stream, record));
        let is_in_block = |address: u64| {
            let is_in = event
                .address
                .checked_add(event.size)
                .is_none_or(|end| address < end);
            has_block(event.kind) && address >= event.address && is_in
        };
        (filter.kind.is_empty() || filter.kind.contains(&event.kind))
            && filter.size.is_none_or(|size| size.holds(event.size))
            && filter.time.is_none_or(|time| time.holds(record.ns))
            && filter.thread.is_none_or(|thread| thread == event.thread)
            && filter.gpu.is_none_or(|gpu| gpu == event.device)
            && filter.address.is_none_or(is_in_block)
            && is_on_stream
            && self.is_in_range(event.thread, event.stack)
            && self.is_in_stack(event.stack)
    }

    /// True if an event is on a stream. Must be called for each event, in order.
    fn is_on(&mut self, stream: u64, record: &Record) -> bool {
        let event = &record.event;
        let is_said = self.recording.stream(record) == Some(stream);
        let tensor = (event.device, event.address);
        match event.kind {
            Kind::TensorAlloc if is_said => drop(self.tensors.insert(tensor)),
            Kind::TensorAlloc => drop(self.tensors.remove(&tensor)),
            Kind::TensorFree => return self.tensors.remove(&tensor) || is_said,
            _ => {}
        }
        is_said
    }

    fn is_in_range(&mut self, thread: u32, stack: u32) -> bool {
        let Some(text) = &self.filter.range else {
            return true;
        };
        let of = |thread: u32| self.open.get(&thread).copied();
        let now = of(thread).or_else(|| of(self.last)).unwrap_or(0);
        let recording = self.recording;
        [now, stack].into_iter().any(|id| {
            *self.in_range.entry(id).or_insert_with(|| {
                let open = recording.open_ranges(id);
                open.iter().any(|name| name.contains(text.as_str()))
            })
        })
    }

    fn is_in_stack(&mut self, stack: u32) -> bool {
        let (Some(text), Some(names)) = (&self.filter.in_stack, &mut self.names) else {
            return true;
        };
        let has = |frame: &Frame| match frame {
            Frame::Call(symbols) => symbols.iter().any(|symbol| {
                let file = symbol.file.as_deref().or(symbol.module.as_deref());
                symbol.function.contains(text.as_str())
                    || file.is_some_and(|file| file.contains(text.as_str()))
            }),
            Frame::Range(_) => false,
        };
        *self
            .in_stack
            .entry(stack)
            .or_insert_with(|| stack != 0 && names.stack(stack).iter().any(has))
    }
}

/// True if the address and size of an event describe memory.
fn has_block(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Alloc
            | Kind::Free
            | Kind::Reserve
            | Kind::Release
            | Kind::TensorAlloc
            | Kind::TensorFree
            | Kind::Export
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_sizes_and_times() {
        let of = |least, most| Some(Between { least, most });
        assert_eq!(size("4096").ok(), of(4096, 4096));
        assert_eq!(size("1M..").ok(), of(1 << 20, u64::MAX));
        assert_eq!(size("..64K").ok(), of(0, 64 << 10));
        assert_eq!(size("1k..1.5k").ok(), of(1024, 1536));
        assert_eq!(time("1.5..2s").ok(), of(1_500_000_000, 2_000_000_000));
        assert_eq!(time("10..").ok(), of(10_000_000_000, u64::MAX));
        for bad in ["", "x", "2M..1M", "1..2..3", "-1..2"] {
            assert!(size(bad).is_err() && time(bad).is_err(), "{bad}");
        }
        assert!(time("1.5").is_err(), "a moment is no stretch of time");
        assert_eq!(number("0x10").ok(), Some(16));
        assert_eq!(number("16").ok(), Some(16));
        assert!(number("0xg").is_err());
    }
}
