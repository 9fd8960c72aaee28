//! The use of the memory that events reserve: its stream and its pool.
//!
//! A snapshot has both for the segments at its end. For earlier ones, an entry has the stream, and
//! the release shows the pool. Segments of a graph's or the program's pool are released alone,
//! while other free segments stay.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::caching::Segment;
use crate::snapshot::entries::DeviceHistory;
use crate::snapshot::history::History;
use gpushim_trace::Kind;

/// Memory that is there at the end: its end address, and its use.
type AtEnd = BTreeMap<u64, (u64, Segment)>;

/// The use of the memory of each event that reserves memory, by the index of the event.
pub(super) fn kinds(device: &DeviceHistory, history: &History) -> Vec<(usize, Segment)> {
    let at_end: AtEnd = device
        .segments
        .iter()
        .map(|(at, size, kind)| (*at, (at.saturating_add(*size), *kind)))
        .collect();
    let own = own_pools(&at_end, history);
    // Segments that are released after the current event.
    let mut goes: FxHashMap<u64, Segment> = FxHashMap::default();
    let mut kinds = Vec::new();
    for (place, (_, event, stream)) in history.events.iter().enumerate().rev() {
        let of_entry = Segment {
            stream: *stream,
            is_expandable: history.mappings.contains(&place),
            ..Segment::default()
        };
        match event.kind {
            Kind::Release => {
                let pool = own.get(&place).map_or((0, 0), |number| (u64::MAX, *number));
                goes.insert(event.address, Segment { pool, ..of_entry });
            }
            Kind::Reserve => {
                let gone = goes.remove(&event.address);
                let stays = at_end.range(..=event.address).next_back();
                let stays = stays.filter(|(_, (end, _))| event.address < *end);
                let kind = gone.or(stays.map(|(_, (_, kind))| *kind));
                kinds.push((place, kind.unwrap_or(of_entry)));
            }
            _ => {}
        }
    }
    kinds
}

/// A segment that is reserved.
struct Held {
    end: u64,
    /// Number of live blocks in it.
    blocks: u64,
    /// True if it is in the default pool, not expandable, and not released until the end.
    stays: bool,
}

/// Events that release memory of private pools, with the number of the pool.
fn own_pools(at_end: &AtEnd, history: &History) -> FxHashMap<usize, u64> {
    let mut own = FxHashMap::default();
    let events = &history.events;
    // Places of the last releases of segments.
    let mut last: FxHashMap<u64, usize> = FxHashMap::default();
    for (place, (_, event, _)) in events.iter().enumerate() {
        if event.kind == Kind::Release {
            last.insert(event.address, place);
        }
    }
    if last.is_empty() {
        return own;
    }
    let late: FxHashMap<usize, usize> = history.completed.iter().copied().collect();
    let mut done: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    let mut held: BTreeMap<u64, Held> = BTreeMap::new();
    let mut unused: u64 = 0;
    let mut run: Vec<usize> = Vec::new();
    for (place, (_, event, _)) in events.iter().enumerate() {
        for address in done.remove(&place).unwrap_or_default() {
            count(&mut held, address, false, &mut unused);
        }
        if event.kind != Kind::Release && !run.is_empty() {
            // A release that makes room for other memory may cover only a part of the free
            // segments.
            if unused > 0 && event.kind != Kind::Reserve {
                let number = own.len() as u64;
                own.extend(run.iter().map(|place| (*place, number)));
            }
            run.clear();
        }
        match event.kind {
            Kind::Reserve => {
                let kind = at_end.get(&event.address).map(|(_, kind)| kind);
                let is_everybodys =
                    kind.is_some_and(|kind| kind.pool == (0, 0) && !kind.is_expandable);
                let goes = last.get(&event.address).is_some_and(|last| *last > place);
                let new = Held {
                    end: event.address.saturating_add(event.size),
                    blocks: 0,
                    stays: is_everybodys && !goes,
                };
                unused += u64::from(new.stays);
                held.insert(event.address, new);
            }
            Kind::Release => {
                let gone = held.remove(&event.address);
                unused -=
                    u64::from(gone.is_some_and(|gone| gone.stays && gone.blocks == 0)).min(unused);
                run.push(place);
            }
            Kind::TensorAlloc => count(&mut held, event.address, true, &mut unused),
            Kind::TensorFree => match late.get(&place) {
                Some(until) => done.entry(*until).or_default().push(event.address),
                None => count(&mut held, event.address, false, &mut unused),
            },
            _ => {}
        }
    }
    if unused > 0 {
        let number = own.len() as u64;
        own.extend(run.iter().map(|place| (*place, number)));
    }
    own
}

/// Counts a block that begins or ends in a segment. `unused` is the number of staying segments
/// without blocks.
fn count(held: &mut BTreeMap<u64, Held>, address: u64, begins: bool, unused: &mut u64) {
    let segment = held.range_mut(..=address).next_back();
    let Some((_, segment)) = segment.filter(|(_, segment)| address < segment.end) else {
        return;
    };
    let was_unused = segment.stays && segment.blocks == 0;
    segment.blocks = if begins {
        segment.blocks.saturating_add(1)
    } else {
        segment.blocks.saturating_sub(1)
    };
    let is_unused = segment.stays && segment.blocks == 0;
    *unused = (*unused + u64::from(is_unused)).saturating_sub(u64::from(was_unused));
}
