//! The free memory of a framework's cache that failed requests could not use, from the layout of
//! the cache. It serves recordings that have no events of its pools and streams.

use super::figures::Situation;
use super::find::Shortage;
use crate::fragmentation::{Fragmentation, Room};
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::Layer;

/// Requests that are examined: each takes several passes over the events, and later ones mostly
/// have the same cause.
const LOOKED_AT: usize = 2;

/// Returns the room of a framework's cache at each of the first requests that it failed.
pub(super) fn rooms(recording: &dyn Recording, shortages: &[Shortage]) -> Vec<Option<Room>> {
    let first = shortages.iter().filter(|one| one.by_framework);
    first
        .take(LOOKED_AT)
        .map(|one| room(recording, one))
        .collect()
}

fn room(recording: &dyn Recording, one: &Shortage) -> Option<Room> {
    let focus = Focus {
        layer: Layer::Tensor,
        device: one.device,
    };
    let layout = Fragmentation::before(recording, focus, one.ticket, one.ns);
    let mut rooms = layout.devices.into_iter();
    rooms.find(|room| room.device == one.device && room.reserved > 0)
}

/// Adds the rooms to the situations, and the rooms of requests by other libraries.
pub(super) fn tell(
    recording: &dyn Recording,
    shortages: &[Shortage],
    rooms: Vec<Option<Room>>,
    situations: &mut [Situation],
) {
    let mut rooms = rooms.into_iter();
    let of_framework = |(one, situation): &(&Shortage, &mut Situation)| {
        one.by_framework || situation.in_framework > 0
    };
    let both = shortages.iter().zip(situations);
    for (one, situation) in both.filter(of_framework).take(LOOKED_AT) {
        let room = match one.by_framework {
            true => rooms.next().flatten(),
            false => room(recording, one),
        };
        if let Some(room) = room {
            of_room(&room, one.by_framework, situation);
        }
    }
}

fn of_room(room: &Room, by_framework: bool, situation: &mut Situation) {
    if !by_framework {
        // The cache would release this, and not the rest of segments in use.
        situation.in_framework = situation.in_framework.min(room.empty);
        return;
    }
    let cached = situation.cached();
    if let Some(cache) = &mut situation.cache {
        cache.largest_free = cache.largest_free.or(Some(room.largest_free));
    }
    // PyTorch releases empty segments before a request fails, except in pools that are still in
    // use.
    situation.in_other_pools = room.empty.min(cached);
    // It would have used a large enough piece, unless the piece belongs to another stream.
    if room.largest_free >= situation.size && room.empty < situation.size {
        situation.on_other_streams = room.stuck.min(cached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom::cause::{Cause, Place};
    use crate::oom::explain::Explanation;
    use crate::oom::find::Cache;

    const GIB: u64 = 1 << 30;

    /// Returns the causes for a request of 45 GiB on a device of 80. A framework holds 48 GiB and
    /// has allocated 1.
    fn causes(empty: u64, largest_free: u64, stuck: u64) -> Vec<Cause> {
        let mut situation = Situation {
            size: 45 * GIB,
            by_framework: true,
            asked_below: Some(true),
            free: Some(31 * GIB),
            total: Some(80 * GIB),
            held: 48 * GIB,
            cache: Some(Cache {
                allocated: GIB,
                reserved: 48 * GIB,
                largest_free: None,
                waiting: 0,
            }),
            ..Situation::default()
        };
        let room = Room {
            reserved: 48 * GIB,
            empty,
            stuck,
            largest_free,
            ..Room::default()
        };
        of_room(&room, true, &mut situation);
        Explanation::by_figures(&situation).causes
    }

    #[test]
    fn what_is_free_and_of_no_use_is_of_pools_streams_or_in_pieces() {
        let bytes = 47 * GIB;
        let elsewhere = |place| Cause::CachedElsewhere { bytes, place };
        assert_eq!(causes(bytes, bytes, 0), [elsewhere(Place::Pool)]);
        assert_eq!(causes(0, bytes, bytes), [elsewhere(Place::Stream)]);
        let pieces = causes(0, 2 * GIB, bytes);
        assert!(
            matches!(pieces[..], [Cause::Fragmentation { largest, .. }] if largest == Some(2 * GIB)),
            "{pieces:?}"
        );
    }

    #[test]
    fn another_library_could_have_what_the_framework_gives_back() {
        let mut situation = Situation {
            in_framework: 10 * GIB,
            ..Situation::default()
        };
        let room = Room {
            empty: 4 * GIB,
            stuck: 6 * GIB,
            ..Room::default()
        };
        of_room(&room, false, &mut situation);
        assert_eq!(situation.in_framework, 4 * GIB);
    }
}
