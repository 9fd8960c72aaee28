//! The traces that a run left, and questions to them.

use std::path::{Path, PathBuf};

use gpushim_trace::{Class, Event, Kind, Trace};

use super::run::Outcome;

/// Contents of one trace file.
pub struct Look {
    /// Readable events of the trace.
    pub events: Vec<Event>,
    /// Facts of the process, as key and value.
    pub facts: Vec<(String, String)>,
    /// Events that are no longer in it.
    pub lost: u64,
    path: PathBuf,
}

impl Outcome {
    /// The traces, by name.
    ///
    /// # Panics
    /// If one of them is damaged.
    pub fn traces(&self) -> Vec<Look> {
        self.traces_cut_off(0)
    }

    /// The only trace.
    ///
    /// # Panics
    /// If there is none or more than one, or it is damaged.
    pub fn trace(&self) -> Look {
        let mut traces = self.traces();
        assert_eq!(
            traces.len(),
            1,
            "traces in {:?}; output {}",
            self.files(),
            self.stdout
        );
        traces.remove(0)
    }

    /// The traces of processes that ended while up to `threads` of their threads were recording.
    ///
    /// Each of these threads may have been stopped in the middle of a record, which is then torn.
    ///
    /// # Panics
    /// If one of them is damaged otherwise.
    pub fn traces_cut_off(&self, threads: u64) -> Vec<Look> {
        let names = self
            .files()
            .into_iter()
            .filter(|name| name.ends_with(".trace"));
        names
            .map(|name| Look::at(self.folder().join(name), threads))
            .collect()
    }

    /// The trace of the process with this number.
    ///
    /// # Panics
    /// If there is none, or it is damaged.
    pub fn trace_of(&self, pid: u64) -> Look {
        Look::at(self.folder().join(format!("{pid}.trace")), 0)
    }
}

impl Look {
    /// Opens a trace. At most `torn` of its records may be torn.
    fn at(path: PathBuf, torn: u64) -> Look {
        let trace = Trace::open(&path).unwrap_or_else(|error| panic!("failed to {error}"));
        assert_eq!(
            trace.problems(),
            &[] as &[String],
            "damage in {}",
            path.display()
        );
        assert!(
            trace.torn() <= torn,
            "{} torn records of a process that ended normally, {torn} at most: {}",
            trace.torn(),
            path.display()
        );
        Look {
            events: trace.events().map(|record| record.event).collect(),
            facts: trace.facts(),
            lost: trace.lost(),
            path,
        }
    }

    /// Path of the file of this trace.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process that the file is named after.
    pub fn pid(&self) -> u64 {
        let stem = self
            .path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        stem.parse()
            .unwrap_or_else(|_| panic!("no process number in {}", self.path.display()))
    }

    /// Returns the events of a kind.
    pub fn of(&self, kind: Kind) -> Vec<Event> {
        self.events
            .iter()
            .filter(|event| event.kind == kind)
            .copied()
            .collect()
    }

    /// The events of a kind and a class.
    pub fn class(&self, kind: Kind, class: Class) -> Vec<Event> {
        self.events
            .iter()
            .filter(|event| event.kind == kind && event.class == class)
            .copied()
            .collect()
    }

    /// Number of events of a kind and a class.
    pub fn count(&self, kind: Kind, class: Class) -> usize {
        self.class(kind, class).len()
    }

    /// Returns the values of a fact.
    pub fn facts(&self, key: &str) -> Vec<&str> {
        self.facts
            .iter()
            .filter(|(name, _)| name == key)
            .map(|(_, value)| &value[..])
            .collect()
    }

    /// Bytes that the pool still held at the end.
    pub fn reserved(&self) -> u64 {
        let taken = sum(&self.of(Kind::Reserve));
        let gone: u64 = self
            .of(Kind::ContextGone)
            .iter()
            .map(|event| event.extra[0])
            .sum();
        taken - sum(&self.of(Kind::Release)) - gone
    }
}

/// Bytes of all these events.
pub fn sum(events: &[Event]) -> u64 {
    events.iter().map(|event| event.size).sum()
}
