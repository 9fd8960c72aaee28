//! The first pass over a run: the walk over call sites, the ranges, and sizes without stacks.

use crate::repeats::{Moment, PathKind, Walk};
use rustc_hash::FxHashMap;

use super::beginning::is_allocation;
use super::found::Found;
use super::ranges::Ranges;
use super::span::Span;
use super::tokens::Tokens;
use super::{By, Given};
use crate::ledger::Focus;
use gpushim_recording::{Reader, Recording, read};
use gpushim_trace::{Event, Kind, Layer, Record, flags};

/// Looks for the loops of a run.
pub struct Search<'a> {
    recording: &'a dyn Recording,
    walk: Walk,
    /// Path of a stack, if it has calls; the key's flag is true for threads other than the first
    /// with lines.
    paths: FxHashMap<(u32, bool), Option<u32>>,
    /// The thread that drives the run: the first whose stacks have lines, or else calls.
    driver: Option<(u32, bool)>,
    /// Allocations without calls, by layer.
    sizes: Vec<(Layer, Tokens)>,
    ranges: Ranges,
    span: Span,
}

impl<'a> Search<'a> {
    /// Searches among all events of a recording.
    pub fn new(recording: &'a dyn Recording) -> Search<'a> {
        Search {
            recording,
            walk: Walk::new(),
            paths: FxHashMap::default(),
            driver: None,
            sizes: Vec::new(),
            ranges: Ranges::default(),
            span: Span::default(),
        }
    }

    /// Takes the next event of the run.
    fn feed(&mut self, record: &Record) {
        // Memory from before the recording does not show the order of its passes.
        if record.event.flags & flags::EARLIER != 0 {
            return;
        }
        let at = Moment::of(record);
        self.span.end = at;
        match record.event.kind {
            Kind::RangePush | Kind::RangeStart => self.ranges.begin(self.recording, record),
            Kind::RangePop | Kind::RangeEnd => self.ranges.end(record),
            Kind::Alloc | Kind::TensorAlloc if is_allocation(&record.event) => {
                self.span.first.get_or_insert(at);
                self.span.last = at;
                self.allocation(&record.event, at);
            }
            _ => {}
        }
    }

    fn allocation(&mut self, event: &Event, at: Moment) {
        let (walk, recording) = (&mut self.walk, self.recording);
        let driver = &mut self.driver;
        let is_other = driver.is_some_and(|(thread, _)| thread != event.thread);
        let path = match event.stack {
            0 => None,
            stack => *self.paths.entry((stack, is_other)).or_insert_with(|| {
                let way = recording.way(stack);
                let is_driver = driver.is_none_or(|(_, has_lines)| way.has_lines && !has_lines);
                if is_driver && !way.calls.is_empty() {
                    *driver = Some((event.thread, way.has_lines));
                }
                let kind = PathKind {
                    has_lines: way.has_lines,
                    is_other,
                };
                (!way.calls.is_empty()).then(|| walk.path(stack, &way.calls, way.below, kind))
            }),
        };
        if let Some(path) = path {
            return self.walk.step(event.thread, path, at);
        }
        let layer = event.class.layer();
        let known = self.sizes.iter().position(|(of, _)| *of == layer);
        let number = known.unwrap_or_else(|| {
            self.sizes.push((layer, Tokens::default()));
            self.sizes.len() - 1
        });
        if let Some((_, sizes)) = self.sizes.get_mut(number) {
            sizes.feed(By::Size(event.size));
        }
    }

    /// Returns the loops; loops of sizes for the memory of a focus.
    pub fn finish(self, focus: Focus) -> Found {
        if self.recording.is_one_moment() {
            return Found::default();
        }
        let (span, recording) = (self.span, self.recording);
        let walked = self.walk.finish(span.after());
        let ranges = self.ranges.finish(span);
        let mut sizes = self.sizes.iter();
        let has_calls = self.driver.is_some();
        let by_size = || {
            let of_focus = sizes.find(|(layer, _)| *layer == focus.layer && !has_calls);
            let (by, _) = of_focus?.1.choose(None)?;
            Some(by)
        };
        Found::new((recording, focus), span, walked, ranges, by_size)
    }
}

impl Reader for Search<'_> {
    fn read(&mut self, records: &[Record]) {
        records.iter().for_each(|record| self.feed(record));
    }
}

impl Found {
    /// Searches a recording in one pass over its events, or looks for the given beginning.
    pub fn of(recording: &dyn Recording, focus: Focus, given: Option<&Given>) -> Found {
        let mut search = Search::new(recording);
        match given {
            Some(given) => Found::given(recording, given),
            None => {
                read(recording, &mut [&mut search]);
                search.finish(focus)
            }
        }
    }
}
