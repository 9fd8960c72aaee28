//! A profile for pprof: allocations and bytes by stack.
//!
//! Format: `profile.proto` of pprof, gzipped. The values have the names of Go's heap profiles, so
//! that pprof's options for them work.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::complete_events::CompleteEvents;
use super::frames::{Function, functions};
use super::process::processes;
use super::profile::profile;
use super::proto::Message;
use crate::error::Result;
use crate::recording::Recording;

/// Fields of `perftools.profiles.Profile`.
mod field {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING: u32 = 6;
    pub const TIME_NANOS: u32 = 9;
    pub const DURATION_NANOS: u32 = 10;
    pub const PERIOD_TYPE: u32 = 11;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Names and units of the sample values.
const VALUES: [(&str, &str); 5] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_space", "bytes"),
];

/// Texts, functions and places, each written once.
struct Tables {
    texts: IndexSet<String, FxBuildHasher>,
    locations: FxHashMap<Function, u64>,
    functions: FxHashMap<(String, String), u64>,
    messages: Vec<u8>,
}

impl Tables {
    fn text(&mut self, text: &str) -> u64 {
        let known = self.texts.get_index_of(text);
        known.unwrap_or_else(|| self.texts.insert_full(text.to_string()).0) as u64
    }

    fn location(&mut self, function: Function) -> u64 {
        if let Some(known) = self.locations.get(&function) {
            return *known;
        }
        let key = (function.name.clone(), function.file.clone());
        let number = match self.functions.get(&key) {
            Some(number) => *number,
            None => {
                let number = self.functions.len() as u64 + 1;
                let (name, file) = (self.text(&key.0), self.text(&key.1));
                let message = Message::new()
                    .number(1, number)
                    .number(2, name)
                    .number(3, name)
                    .number(4, file);
                self.put(field::FUNCTION, &message);
                self.functions.insert(key, number);
                number
            }
        };
        let place = self.locations.len() as u64 + 1;
        let line = Message::new()
            .number(1, number)
            .number(2, function.line.into());
        let message = Message::new().number(1, place).message(4, &line);
        self.put(field::LOCATION, &message);
        self.locations.insert(function, place);
        place
    }

    fn put(&mut self, field: u32, message: &Message) {
        let whole = Message::new().message(field, message);
        self.messages.extend_from_slice(whole.as_bytes());
    }

    fn value_type(&mut self, (name, unit): (&str, &str)) -> Message {
        let (name, unit) = (self.text(name), self.text(unit));
        Message::new().number(1, name).number(2, unit)
    }
}

/// Writes one profile of all recordings; samples are labelled with their process and rank.
pub(super) fn write(recordings: &[Box<dyn Recording>], out: &mut dyn Write) -> Result<()> {
    let (processes, begin) = processes(recordings);
    let mut tables = Tables {
        texts: IndexSet::default(),
        locations: FxHashMap::default(),
        functions: FxHashMap::default(),
        messages: Vec::new(),
    };
    // The first text has to be none.
    tables.text("");
    for value in VALUES {
        let message = tables.value_type(value);
        tables.put(field::SAMPLE_TYPE, &message);
    }
    let mut last = 0;
    for (recording, process) in recordings.iter().zip(&processes) {
        let story = CompleteEvents::of(&**recording);
        let mut names = recording.names();
        for (stack, sums) in profile(&story) {
            let locations: Vec<u64> = functions(&names.stack(stack))
                .into_iter()
                .map(|function| tables.location(function))
                .collect();
            let values = [
                sums.allocations,
                sums.allocated,
                sums.live_blocks,
                sums.live,
                sums.peak,
            ];
            let mut sample = Message::new().numbers(1, locations).numbers(2, values);
            let (key, pid) = (tables.text("pid"), u64::from(process.pid));
            sample = sample.message(3, &Message::new().number(1, key).number(3, pid));
            if let Some(rank) = &process.rank {
                let (key, rank) = (tables.text("rank"), tables.text(rank));
                sample = sample.message(3, &Message::new().number(1, key).number(2, rank));
            }
            tables.put(field::SAMPLE, &sample);
        }
        last = recording
            .events()
            .map(|record| record.ns)
            .fold(last, u64::max);
    }
    let period = tables.value_type(("space", "bytes"));
    tables.put(field::PERIOD_TYPE, &period);
    let default = tables.text("peak_space");
    let rest = Message::new()
        .number(field::TIME_NANOS, begin)
        .number(field::DURATION_NANOS, last)
        .number(field::DEFAULT_SAMPLE_TYPE, default);
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&tables.messages)?;
    packed.write_all(rest.as_bytes())?;
    for text in &tables.texts {
        packed.write_all(Message::new().text(field::STRING, text).as_bytes())?;
    }
    packed.finish()?;
    Ok(())
}
