//! Events as lines of text and of JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::output::escape::{self, shown};
use crate::output::units::{bytes, span};
use crate::recording::{Frame, Function, Names, Recording, calls, ranges};
use crate::symbols::lines;
use gpushim_trace::{Cost, Event, Kind, Occasion, OwnerWords, Record, flags};

/// Writes the events of a recording, with their stacks if `names` is given.
pub struct Listing<'a> {
    recording: &'a dyn Recording,
    names: Option<Box<dyn Names + 'a>>,
}

impl<'a> Listing<'a> {
    /// A listing with stacks if their functions can be named.
    pub fn new(recording: &'a dyn Recording, names: Option<Box<dyn Names + 'a>>) -> Listing<'a> {
        Listing { recording, names }
    }

    /// The headings of the text.
    pub fn head(out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>10} {:>12} {:>8} {:14} {:10} {:>3}  {:18} {:>10}",
            "event", "seconds", "thread", "kind", "class", "gpu", "address", "size"
        )
    }

    /// Writes an event as text.
    pub fn text(&mut self, record: &Record, out: &mut impl Write) -> io::Result<()> {
        text(self.recording, record, out)?;
        let lines = self.lines(record).unwrap_or_default();
        lines
            .iter()
            .try_for_each(|line| writeln!(out, "{:>24}{}", "", shown(line)))
    }

    /// An event for programs, without a line feed.
    pub fn json(&mut self, record: &Record, out: &mut impl Write) -> io::Result<()> {
        let mut line = Line::of(self.recording, record);
        if let Some(names) = &mut self.names {
            let stack = names.stack(record.event.stack);
            line.frames = Some(calls(&stack).map(Function::of).collect());
            line.ranges = Some(ranges(&stack));
        }
        write!(out, "{}", escape::json(&serde_json::to_string(&line)?))
    }

    /// The functions of an event's stack, the innermost first, then the ranges that were open;
    /// `None` without stacks.
    fn lines(&mut self, record: &Record) -> Option<Vec<String>> {
        let of_frame = |frame: &Frame| match frame {
            Frame::Call(symbols) => lines(symbols),
            Frame::Range(name) => vec![format!("[{name}]")],
        };
        let stack = self.names.as_mut()?.stack(record.event.stack);
        Some(stack.iter().flat_map(of_frame).collect())
    }
}

fn text(recording: &dyn Recording, record: &Record, out: &mut impl Write) -> io::Result<()> {
    let Event {
        kind,
        class,
        device,
        thread,
        address,
        size,
        result,
        ..
    } = record.event;
    let (address, size) = match kind {
        Kind::OwnersWalk => (0, 0),
        _ => (address, size),
    };
    let device = if device == Event::NO_DEVICE {
        "-".to_string()
    } else {
        device.to_string()
    };
    write!(
        out,
        "{:>10} {:>12.6} {thread:>8} {:14} {:10} {device:>3}  {:18} {:>10}",
        record.ticket,
        record.ns as f64 / 1e9,
        kind.name(),
        class.name(),
        format!("{address:#x}"),
        bytes(size)
    )?;
    for name in flag_names(record.event.flags) {
        write!(out, " {name}")?;
    }
    let detail = Detail::of(recording, record);
    if let Some(name) = &detail.name {
        write!(out, " {name:?}")?;
    }
    if let Some(domain) = &detail.domain {
        write!(out, " of {domain:?}")?;
    }
    for (before, text) in [
        (" from ", detail.root.as_deref()),
        (", ", detail.kept),
        (" at: ", detail.occasion),
    ] {
        if let Some(text) = text {
            write!(out, "{before}{text}")?;
        }
    }
    if let Some(ns) = detail.took_ns {
        write!(out, ", took {}", span(ns))?;
    }
    for (name, number) in [
        ("number", detail.number),
        ("ranks", detail.ranks),
        ("rank", detail.rank),
    ] {
        if let Some(number) = number {
            write!(out, " {name} {number}")?;
        }
    }
    for (name, value) in detail.sizes() {
        write!(out, ", {name} {}", bytes(value))?;
    }
    if let Some(ns) = detail.driver_ns.filter(|ns| *ns > 0) {
        write!(out, ", {} in the driver", span(ns))?;
    }
    for (name, handle) in [
        ("stream", detail.stream),
        ("context", detail.context),
        ("graph", detail.graph),
    ] {
        if let Some(handle) = handle.filter(|handle| *handle != 0) {
            write!(out, ", {name} {handle:#x}")?;
        }
    }
    if result != 0 {
        write!(out, ", result {result}")?;
    }
    writeln!(out)
}

/// Returns the names of the flags that are set.
pub(crate) fn flag_names(bits: u16) -> Vec<&'static str> {
    flags::NAMES
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| *name)
        .collect()
}

/// One event as a JSON object.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line {
    event: u64,
    ns: u64,
    thread: u32,
    kind: &'static str,
    class: &'static str,
    flags: Vec<&'static str>,
    device: Option<u8>,
    address: u64,
    size: u64,
    result: i16,
    stack: Option<u32>,
    /// The functions of the stack, innermost first, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<Vec<Function>>,
    /// The ranges that were open, innermost first.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<String>>,
    #[serde(flatten)]
    detail: Detail,
}

impl Line {
    fn of(recording: &dyn Recording, record: &Record) -> Line {
        let event = &record.event;
        Line {
            event: record.ticket,
            ns: record.ns,
            thread: event.thread,
            kind: event.kind.name(),
            class: event.class.name(),
            flags: flag_names(event.flags),
            device: (event.device != Event::NO_DEVICE).then_some(event.device),
            address: match event.kind {
                Kind::PoolState | Kind::OwnersWalk => 0,
                _ => event.address,
            },
            size: match event.kind {
                Kind::OwnersWalk => 0,
                _ => event.size,
            },
            result: event.result,
            stack: (event.stack != 0).then_some(event.stack),
            frames: None,
            ranges: None,
            detail: Detail::of(recording, record),
        }
    }
}

/// Meaning of an event's words for its kind.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// The beginning of an owner's path: a function with its line, or a module.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<String>,
    /// In which way a block is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<&'static str>,
    /// Why the program's objects were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    occasion: Option<&'static str>,
    /// Duration of a walk over the program's objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    largest_free: Option<u64>,
    /// Freed, and waiting for captures and graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<u64>,
    /// The ranks of a communicator.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<u64>,
    /// The rank of the process in a communicator.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u64>,
}

impl Detail {
    fn of(recording: &dyn Recording, record: &Record) -> Detail {
        let event = &record.event;
        let [first, second] = event.extra.map(Some);
        let string = |id: u64| recording.text(id);
        let detail = Detail::default();
        match event.kind {
            Kind::Alloc | Kind::Free => {
                let Cost { driver_ns, block } = event.cost();
                Detail {
                    stream: first,
                    block: Some(block),
                    driver_ns: Some(driver_ns.into()),
                    ..detail
                }
            }
            Kind::Reserve | Kind::Release => Detail {
                context: first,
                ..detail
            },
            Kind::OutOfMemory | Kind::DeviceMemory | Kind::ContextMade | Kind::ProcessMemory => {
                Detail {
                    free: first,
                    total: second,
                    ..detail
                }
            }
            Kind::ContextGone => Detail {
                reserved: first,
                ..detail
            },
            Kind::TensorAlloc | Kind::TensorFree | Kind::TensorOutOfMemory => Detail {
                stream: recording.stream(record),
                allocated: first,
                reserved: second,
                ..detail
            },
            Kind::CaptureBegin => Detail {
                stream: first,
                ..detail
            },
            Kind::CaptureEnd => Detail {
                stream: first,
                graph: second,
                ..detail
            },
            Kind::RangePush | Kind::Mark => Detail {
                name: string(event.address),
                domain: first.and_then(string),
                ..detail
            },
            Kind::RangeStart => Detail {
                name: string(event.address),
                domain: first.and_then(string),
                number: Some(event.size),
                ..detail
            },
            Kind::RangeEnd => Detail {
                number: Some(event.size),
                ..detail
            },
            Kind::ThreadName => Detail {
                name: string(event.address),
                ..detail
            },
            Kind::PoolState => Detail {
                reserved: first,
                largest_free: second,
                waiting: (event.address > 0).then_some(event.address),
                ..detail
            },
            Kind::Owner => {
                let words = OwnerWords::unpack(event.extra);
                Detail {
                    name: string(words.path.into()),
                    root: string(words.root.into()),
                    kept: Some(words.kept.name()),
                    ..detail
                }
            }
            Kind::OwnersWalk => Detail {
                occasion: Some(Occasion::from_number(event.address).name()),
                number: Some(event.size),
                took_ns: first,
                ..detail
            },
            Kind::CommunicatorBegin => Detail {
                ranks: first,
                rank: second,
                ..detail
            },
            Kind::Trim
            | Kind::Export
            | Kind::RangePop
            | Kind::ModuleLoad
            | Kind::GraphMade
            | Kind::GraphGone
            | Kind::CommunicatorEnd
            | Kind::Unknown => detail,
        }
    }

    fn sizes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("block", self.block),
            ("free", self.free),
            ("of", self.total),
            ("allocated", self.allocated),
            ("reserved", self.reserved),
            ("largest free", self.largest_free),
            ("waiting", self.waiting),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}
