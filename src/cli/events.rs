//! `gpushim events`: the events themselves.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use gpushim_core::recording::{self, Frame, Names, Recording};
use gpushim_core::report::units::{bytes, span};
use gpushim_core::symbols::lines;
use gpushim_core::trace::{Cost, Event, Kind, Record, flags};
use serde::Serialize;

use super::{Format, Outcome, complain, traces};

/// List the events of a trace in the order in which they were recorded.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace files; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    /// Only these kinds, for example `alloc,free`.
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    kind: Vec<Kind>,
    /// With the call stacks and open ranges of allocations, as far as they were recorded.
    #[arg(long)]
    stacks: bool,
    /// At most this many of each file.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// How to print; JSON is one object a line.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| {
            let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            format!("expected one of {}", names.join(", "))
        })
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut outcome = Outcome::Fine;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for path in traces::named_or_newest(&args.files)? {
        let trace = match recording::open(&path) {
            Ok(trace) => trace,
            Err(error) => {
                complain(&error);
                outcome = Outcome::Failed;
                continue;
            }
        };
        for problem in trace.problems() {
            eprintln!("gpushim: {}: {problem}", path.display());
        }
        let mut stacks = args.stacks.then(|| Stacks::of(&*trace));
        if args.format == Format::Text {
            writeln!(
                out,
                "{:>10} {:>12} {:>8} {:14} {:10} {:>3}  {:18} {:>10}",
                "event", "seconds", "thread", "kind", "class", "gpu", "address", "size"
            )?;
        }
        let wanted =
            |record: &Record| args.kind.is_empty() || args.kind.contains(&record.event.kind);
        for record in trace
            .events()
            .filter(wanted)
            .take(args.limit.unwrap_or(usize::MAX))
        {
            match args.format {
                Format::Text => {
                    text(&*trace, &record, &mut out)?;
                    for line in stacks.iter_mut().flat_map(|s| s.lines(&record)) {
                        writeln!(out, "{:>24}{line}", "")?;
                    }
                }
                Format::Json => {
                    let mut line = Line::of(&*trace, &record);
                    line.frames = stacks.as_mut().map(|s| s.lines(&record));
                    serde_json::to_writer(&mut out, &line)?;
                    writeln!(out)?;
                }
            }
        }
    }
    out.flush()?;
    Ok(outcome)
}

/// Stacks as lines, each made once.
struct Stacks<'a> {
    names: Box<dyn Names + 'a>,
    known: HashMap<u32, Vec<String>>,
}

impl<'a> Stacks<'a> {
    fn of(recording: &'a dyn Recording) -> Stacks<'a> {
        Stacks {
            names: recording.names(),
            known: HashMap::new(),
        }
    }

    /// The functions of an event's stack, the innermost first, then the ranges that were open.
    fn lines(&mut self, record: &Record) -> Vec<String> {
        let names = &mut self.names;
        let lines = self.known.entry(record.event.stack).or_insert_with(|| {
            let of_frame = |frame: &Frame| match frame {
                Frame::Call(symbols) => lines(symbols),
                Frame::Range(name) => vec![format!("[{name}]")],
            };
            let stack = names.stack(record.event.stack);
            stack.iter().flat_map(of_frame).collect()
        });
        lines.clone()
    }
}

fn text(trace: &dyn Recording, record: &Record, out: &mut impl Write) -> std::io::Result<()> {
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
    let detail = Detail::of(trace, &record.event);
    if let Some(name) = &detail.name {
        write!(out, " {name:?}")?;
    }
    if let Some(domain) = &detail.domain {
        write!(out, " of {domain:?}")?;
    }
    if let Some(number) = detail.number {
        write!(out, " number {number}")?;
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

fn flag_names(bits: u16) -> Vec<&'static str> {
    flags::NAMES
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| *name)
        .collect()
}

/// One event as a JSON object.
#[derive(Serialize)]
struct Line {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<Vec<String>>,
    #[serde(flatten)]
    detail: Detail,
}

impl Line {
    fn of(trace: &dyn Recording, record: &Record) -> Line {
        let event = &record.event;
        Line {
            event: record.ticket,
            ns: record.ns,
            thread: event.thread,
            kind: event.kind.name(),
            class: event.class.name(),
            flags: flag_names(event.flags),
            device: (event.device != Event::NO_DEVICE).then_some(event.device),
            address: event.address,
            size: event.size,
            result: event.result,
            stack: (event.stack != 0).then_some(event.stack),
            frames: None,
            detail: Detail::of(trace, event),
        }
    }
}

/// What the words of an event mean for its kind.
#[derive(Default, Serialize)]
struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    largest_free: Option<u64>,
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
}

impl Detail {
    fn of(trace: &dyn Recording, event: &Event) -> Detail {
        let [first, second] = event.extra.map(Some);
        let string = |id: u64| trace.text(id);
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
            Kind::OutOfMemory | Kind::DeviceMemory => Detail {
                free: first,
                total: second,
                ..detail
            },
            Kind::ContextGone => Detail {
                reserved: first,
                ..detail
            },
            Kind::TensorAlloc | Kind::TensorFree | Kind::TensorOutOfMemory => Detail {
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
                ..detail
            },
            Kind::Trim
            | Kind::Import
            | Kind::Export
            | Kind::Failed
            | Kind::ContextNew
            | Kind::RangePop
            | Kind::ModuleLoad
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
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}
