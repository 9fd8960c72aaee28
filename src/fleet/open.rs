//! Adds to outliers what more than their summaries says: the command to type next, and the last
//! place of a rank that died.

use std::path::Path;

use super::gather::each;
use super::job::Fleet;
use super::make::site;
use super::outlier::{Kind, Outlier};
use super::summary::Site;
use crate::recording;
use gpushim_trace::Kind as EventKind;

impl Fleet {
    /// Adds the command that says more to each outlier whose trace is there. Opens the traces of at
    /// most `most` ranks that died, for the last place where they allocated.
    pub fn open_outliers(&mut self, most: usize) {
        let next = self.outliers.iter().map(|one| self.next(one));
        let next: Vec<Option<String>> = next.collect();
        for (one, next) in self.outliers.iter_mut().zip(next) {
            one.next = next;
        }
        let died = self.outliers.iter().enumerate();
        let died = died.filter(|(_, one)| one.kind == Kind::Died);
        let died = died.filter_map(|(at, one)| Some((at, self.trace(*one.members.first()?)?)));
        let died: Vec<(usize, &Path)> = died.take(most).collect();
        let places = each(&died, "opening traces", |(at, trace)| {
            (*at, last_place(trace))
        });
        for (at, place) in places {
            if let Some(one) = self.outliers.get_mut(at) {
                one.site = place.or(one.site.take());
            }
        }
    }

    fn next(&self, one: &Outlier) -> Option<String> {
        let first = *one.members.first()?;
        let subcommand = match one.kind {
            Kind::Leak => "growth",
            Kind::OutOfMemory => "oom",
            Kind::Straggler => "phases",
            Kind::Imbalance | Kind::OtherModel => return self.diff_of(first),
            Kind::Died | Kind::OtherSettings | Kind::Missing => "report",
        };
        let trace = self.trace(first)?.display();
        Some(format!("gpushim {subcommand} {trace}"))
    }
}

/// Returns the stack of the last allocation that has one.
fn last_place(trace: &Path) -> Option<Site> {
    let recording = recording::open(trace).ok()?;
    let events = recording.events().map(|record| record.event);
    let allocations = events.filter(|event| {
        matches!(event.kind, EventKind::Alloc | EventKind::TensorAlloc) && event.stack != 0
    });
    let last = allocations.last()?;
    Some(site(last.stack, &mut *recording.names()))
}
