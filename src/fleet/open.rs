//! Opens the traces of outliers to find functions and lines. No other traces are opened.

use std::path::Path;

use super::gather::{Member, each};
use super::job::Fleet;
use super::make::site;
use super::outlier::Kind;
use super::summary::{RankSummary, Site};
use crate::recording::{self, Recording};
use gpushim_trace::Kind as EventKind;

/// Details from the trace of an outlier.
struct Told {
    site: Option<Site>,
    next: String,
}

impl Fleet {
    /// Opens the trace of the first rank of each outlier, for at most `most` outliers.
    pub fn open_outliers(&mut self, most: usize) {
        let wanted: Vec<(usize, Kind, &Member, &Path)> = (self.outliers.iter().enumerate())
            .filter_map(|(at, one)| {
                let member = self.members.get(*one.members.first()?)?;
                Some((at, one.kind, member, member.place.trace.as_deref()?))
            })
            .take(most)
            .collect();
        let told = each(&wanted, "opening outliers", |(_, kind, member, trace)| {
            let recording = recording::open(trace).ok()?;
            Some(look(*kind, &member.summary, &*recording))
        });
        let told: Vec<_> = wanted.iter().map(|(at, ..)| *at).zip(told).collect();
        for (at, told) in told {
            if let (Some(one), Some(told)) = (self.outliers.get_mut(at), told) {
                one.site = told.site.or(one.site.take());
                one.next = Some(told.next);
            }
        }
        self.compare_by_diff();
    }

    /// Suggests a comparison with the trace of a usual rank for ranks that hold more or less.
    fn compare_by_diff(&mut self) {
        let is_alike = |index: &usize| {
            self.ranks
                .get(*index)
                .is_some_and(|row| row.outlier.is_empty())
        };
        let usual = (0..self.ranks.len()).filter(is_alike);
        let median = self.totals.peak.median;
        let nearest = usual.min_by_key(|index| {
            self.ranks
                .get(*index)
                .map_or(u64::MAX, |row| row.peak.abs_diff(median))
        });
        let Some(usual) = nearest.and_then(|index| self.ranks.get(index)) else {
            return;
        };
        let usual = usual.file.clone();
        for one in &mut self.outliers {
            let rank = one.members.first().and_then(|index| self.ranks.get(*index));
            let is_compared = matches!(one.kind, Kind::Imbalance | Kind::OtherModel);
            if let Some(rank) = rank.filter(|_| is_compared) {
                one.next = Some(format!("gpushim diff {usual} {}", rank.file));
            }
        }
    }
}

fn look(kind: Kind, summary: &RankSummary, recording: &dyn Recording) -> Told {
    let path = recording.path().display();
    let of_finding = |summary: &RankSummary, kinds: &[&str]| {
        let mut findings = summary.findings.iter();
        let finding = findings.find(|one| kinds.contains(&one.kind.as_str()));
        finding.and_then(|one| one.site.clone())
    };
    // The summary comes from the same events, so a site that it has need not be searched again. A
    // search takes seconds.
    let named = |kinds: &[&str]| of_finding(summary, kinds);
    match kind {
        Kind::Leak => {
            let kinds = ["growth"];
            let anew = || {
                let summary = RankSummary::read(recording);
                let keepers = summary.iterations.as_ref().map(|of| &of.keepers);
                let keeper = keepers.and_then(|keepers| keepers.first());
                of_finding(&summary, &kinds).or_else(|| keeper.map(|keeper| keeper.site.clone()))
            };
            Told {
                site: named(&kinds).or_else(anew),
                next: format!("gpushim growth {path}"),
            }
        }
        Kind::OutOfMemory => {
            let kinds = ["out-of-memory"];
            let anew = || of_finding(&RankSummary::read(recording), &kinds);
            Told {
                site: named(&kinds).or_else(anew),
                next: format!("gpushim oom {path}"),
            }
        }
        // The last allocation with a stack.
        Kind::Died => {
            let events = recording.events().map(|record| record.event);
            let allocations = events.filter(|event| {
                matches!(event.kind, EventKind::Alloc | EventKind::TensorAlloc) && event.stack != 0
            });
            let last = allocations.last().map(|event| event.stack);
            Told {
                site: last.map(|stack| site(stack, &mut *recording.names())),
                next: format!("gpushim report {path}"),
            }
        }
        Kind::Straggler => Told {
            site: None,
            next: format!("gpushim phases {path}"),
        },
        Kind::Imbalance | Kind::OtherModel | Kind::OtherSettings | Kind::Missing => Told {
            site: None,
            next: format!("gpushim report {path}"),
        },
    }
}
