//! Tests of ranges, which the allocator above maps part by part.

use super::{CONTEXT, STREAM, device, segment};
use crate::driver::Driver;
use crate::elastic::{Allocation, Elastic, Mode, PAGE, Trouble};
use crate::sim::{Call, Error, Probe};
use std::time::Duration;

/// Pages of a range, and of the parts that it is mapped in.
const PAGES: u64 = 64;
const PART: u64 = 10;

/// Adds a range, without mapped parts.
fn range(elastic: &Elastic<Probe>, is_trusted: bool) -> u64 {
    let driver = &elastic.pages().driver;
    let base = driver.reserve(0, PAGES * PAGE).expect("no call fails");
    assert!(elastic.add_range(base, PAGES * PAGE, is_trusted));
    base
}

/// Maps the n-th part of a range.
fn map(elastic: &Elastic<Probe>, base: u64, n: u64) -> Option<bool> {
    elastic.map(base + n * PART * PAGE, PART * PAGE)
}

/// Unmaps the n-th part of a range.
fn unmap(elastic: &Elastic<Probe>, base: u64, n: u64) {
    let unmapped = elastic.unmap(base + n * PART * PAGE, PART * PAGE);
    assert_eq!(unmapped, Some(Ok(())));
}

/// Number of pages of the device that are held.
fn held(elastic: &Elastic<Probe>) -> u64 {
    elastic.stats().held / PAGE
}

#[test]
fn a_range_that_grows_has_memory_only_where_tensors_are() {
    let (_sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    assert!(elastic.has_range(base, PAGES * PAGE));
    assert!(!elastic.has_range(base + PAGE, PAGES * PAGE));
    assert_eq!(elastic.find(base), None, "nothing is mapped");
    assert_eq!(map(&elastic, base, 0), Some(true));
    assert_eq!((held(&elastic), elastic.stats().segments), (0, PART * PAGE));
    elastic.allocated(base, 9 * PAGE, 9 * PAGE, None);
    assert_eq!(held(&elastic), 9);
    assert_eq!(map(&elastic, base, 1), Some(true));
    // It is on the last page of one part and the first page of the next.
    let born = elastic.allocated(base + 9 * PAGE, 2 * PAGE, 11 * PAGE, None);
    assert_eq!((born, held(&elastic)), (Allocation::default(), 11));
    let found = elastic.find(base + 19 * PAGE).expect("it is mapped");
    assert_eq!((found.base, found.bytes), (base, 20 * PAGE));
    assert_eq!(elastic.find(base + 20 * PAGE), None);
    assert_eq!(elastic.map(base + PAGES * PAGE, PAGE), None, "it is beyond");
}

#[test]
fn the_memory_of_a_hole_is_spare_and_it_is_mapped_again() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    (0..3).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    let hole = base + PART * PAGE;
    let number = elastic.find(hole).map(|found| found.number);
    elastic.allocated(base, PART * PAGE, PART * PAGE, Some(1));
    elastic.allocated(hole, PART * PAGE, 2 * PART * PAGE, Some(1));
    let grant = sim.granted(hole, PART * PAGE);
    sim.launch(STREAM, &[(hole, PART * PAGE, grant)]);
    sim.returned(hole);
    elastic.freed(hole, PART * PAGE, PART * PAGE, false);
    unmap(&elastic, base, 1);
    let stats = elastic.stats();
    assert_eq!((stats.held, stats.spare), (2 * PART * PAGE, PART * PAGE));
    assert_eq!(elastic.find(hole), None);
    assert_eq!(sim.calls(0, Call::Unmap), 0);
    let given = elastic.give_back(u64::MAX, true, Duration::ZERO);
    assert_eq!(given, PART * PAGE, "after the work on the hole");
    assert_eq!(elastic.stats().segments, 2 * PART * PAGE);
    assert_eq!(map(&elastic, base, 1), Some(true));
    assert_eq!(elastic.find(hole).map(|found| found.number), number);
    let born = elastic.allocated(hole, PAGE, (PART + 1) * PAGE, Some(1));
    assert_eq!((born, held(&elastic)), (Allocation::default(), PART + 1));
    assert_eq!(sim.findings(), Vec::<String>::new());
}

#[test]
fn a_hole_that_keeps_its_memory_gives_it_back_at_once() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    (0..2).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    elastic.capture_began(1);
    elastic.allocated(base, PAGE, PAGE, Some(1));
    elastic.capture_ended(1);
    elastic.freed(base, PAGE, 0, false);
    assert_eq!(elastic.stats().spare, 0, "the graph uses it");
    unmap(&elastic, base, 0);
    assert_eq!(sim.in_pages(), (0, 0));
}

#[test]
fn a_piece_stays_whole_while_a_tensor_beside_the_hole_is_on_it() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    (0..3).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    // Pieces of four pages from page 8 on.
    elastic.allocated(base + 8 * PAGE, 16 * PAGE, 16 * PAGE, None);
    elastic.freed(base + 8 * PAGE, 16 * PAGE, 0, false);
    elastic.allocated(base + 8 * PAGE, PAGE, PAGE, None);
    let parts = || sim.parts(base + 8 * PAGE, PAGE);
    let was = parts();
    assert!(was.is_ok());
    unmap(&elastic, base, 1);
    assert_eq!((parts(), held(&elastic)), (was, 8));
    assert_eq!(elastic.find(base + 10 * PAGE), None);
    elastic.freed(base + 8 * PAGE, PAGE, 0, false);
    assert_eq!(elastic.stats().spare, 8 * PAGE);
    unmap(&elastic, base, 0);
    unmap(&elastic, base, 2);
    assert!(elastic.give_back(u64::MAX, true, Duration::ZERO) > 0);
    assert_eq!(sim.in_pages(), (0, 0));
}

#[test]
fn a_piece_stays_whole_beside_a_hole_once_announcements_were_wrong() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    (0..3).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    elastic.allocated(base + 8 * PAGE, 16 * PAGE, 16 * PAGE, None);
    elastic.freed(base + 8 * PAGE, 16 * PAGE, 0, false);
    assert!(elastic.freed(base, PAGE, 0, false).is_some());
    unmap(&elastic, base, 1);
    assert!(sim.parts(base, PART * PAGE).is_ok(), "tensors may be there");
}

#[test]
fn a_part_is_refused_if_its_tensor_does_not_fit() {
    let (_sim, elastic) = device(25, Mode::Pressure);
    let base = range(&elastic, true);
    let part = PART * PAGE;
    // The last part may be larger than the rest of the tensor, which is on a page of it at least.
    assert!(elastic.may_map(0, part) && elastic.may_map(part, part));
    assert!(elastic.may_map(2 * part, part));
    assert!(!elastic.may_map(3 * part, part));
    (0..2).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    elastic.allocated(base, 15 * PAGE, 15 * PAGE, None);
    assert!(elastic.may_map(9 * PAGE, part));
    assert!(!elastic.may_map(part, part), "live tensors count");
    elastic.freed(base, 15 * PAGE, 0, false);
    assert!(
        elastic.may_map(2 * part, part),
        "spare memory is left for it"
    );
}

#[test]
fn parts_of_a_new_allocator_have_memory_until_it_announces() {
    let (_sim, elastic) = device(25, Mode::Least);
    let base = range(&elastic, false);
    let part = PART * PAGE;
    assert!(elastic.may_map(part, part) && !elastic.may_map(2 * part, part));
    (0..2).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    assert_eq!(elastic.stats().in_use, 2 * part);
    assert_eq!(map(&elastic, base, 2), Some(false), "there is no memory");
    assert_eq!((held(&elastic), elastic.find(base + 2 * part)), (20, None));
    assert!(!elastic.allocated(base + PAGE, PAGE, PAGE, None).proves);
    assert!(elastic.allocated(base, PAGE, 2 * PAGE, None).proves);
    let stats = elastic.stats();
    assert_eq!((stats.in_use, stats.spare), (2 * PAGE, 18 * PAGE));
    assert_eq!(map(&elastic, base, 2), Some(true));
    assert!(elastic.may_map(2 * part, part));
}

#[test]
fn two_ranges_share_memory_under_pressure() {
    let (sim, elastic) = device(12, Mode::Pressure);
    let bases = [range(&elastic, true), range(&elastic, true)];
    for base in [bases, bases].concat() {
        map(&elastic, base, 0);
        let born = elastic.allocated(base, PART * PAGE, PART * PAGE, Some(1));
        assert_eq!(born, Allocation::default());
        elastic.freed(base, PART * PAGE, 0, false);
    }
    assert_eq!((held(&elastic), sim.calls(0, Call::Wait)), (12, 0));
    // The memory of the first is mapped at the second, too, and stays there.
    unmap(&elastic, bases[0], 0);
    assert_eq!(elastic.free(bases[0], true, |_| ()), Some(Ok(None)));
    assert_eq!(elastic.free(bases[0], true, |_| ()), None);
    let born = elastic.allocated(bases[1], PART * PAGE, PART * PAGE, Some(1));
    assert_eq!((born, held(&elastic)), (Allocation::default(), PART));
    assert_eq!(sim.findings(), Vec::<String>::new());
}

#[test]
fn a_pinned_range_has_memory_in_all_its_parts_and_only_there() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    (0..3).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    unmap(&elastic, base, 1);
    assert_eq!(elastic.backing(base), None, "its memory may go");
    assert!(elastic.pin(base));
    let places = || {
        let (found, pieces) = elastic.backing(base)?;
        assert_eq!((found.base, found.bytes), (base, 30 * PAGE));
        let pages = pieces.iter().map(|(at, _)| (at - base) / PAGE);
        Some(Vec::from_iter(pages))
    };
    assert_eq!(
        places(),
        Some([0..10, 20..30].into_iter().flatten().collect())
    );
    assert_eq!(map(&elastic, base, 1), Some(true));
    assert_eq!(places(), Some(Vec::from_iter(0..30)));
    assert!(sim.parts(base, 30 * PAGE).is_ok());
    assert_eq!(elastic.stats().pinned, 30 * PAGE);
}

#[test]
fn a_capture_pins_the_pieces_of_its_tensors_only() {
    let (_sim, elastic) = device(100, Mode::Least);
    let base = segment(&elastic, 20);
    elastic.capture_began(1);
    elastic.allocated(base, 2 * PAGE, 2 * PAGE, None);
    elastic.freed(base, 2 * PAGE, 0, false);
    elastic.capture_ended(1);
    elastic.allocated(base + 10 * PAGE, 2 * PAGE, 2 * PAGE, None);
    elastic.freed(base + 10 * PAGE, 2 * PAGE, 0, false);
    let stats = elastic.stats();
    assert_eq!((stats.pinned, stats.spare), (2 * PAGE, 2 * PAGE));
    assert_eq!(elastic.backing(base), None, "it was not exported");
}

#[test]
fn a_page_that_the_driver_does_not_unmap_serves_the_next_part_there() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    map(&elastic, base, 0);
    elastic.allocated(base, PAGE, PAGE, None);
    elastic.freed(base, PAGE, 0, false);
    sim.fail(Some((Call::Unmap, 1, Error::Failed)));
    unmap(&elastic, base, 0);
    assert_eq!((held(&elastic), elastic.stats().spare), (1, PAGE));
    map(&elastic, base, 0);
    let born = elastic.allocated(base, 2 * PAGE, 2 * PAGE, None);
    assert_eq!((born, held(&elastic)), (Allocation::default(), 2));
    assert_eq!(sim.findings(), Vec::<String>::new());
}

#[test]
fn a_tensor_where_nothing_is_mapped_ends_all_moves() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    (0..2).for_each(|n| assert_eq!(map(&elastic, base, n), Some(true)));
    unmap(&elastic, base, 0);
    let straddles = Some(Trouble::Straddles(base + 9 * PAGE));
    let born = elastic.allocated(base + 9 * PAGE, 2 * PAGE, 2 * PAGE, None);
    assert_eq!(born.trouble, straddles);
    assert!(sim.parts(base + PART * PAGE, PART * PAGE).is_ok());
    assert_eq!(
        held(&elastic),
        PART,
        "no part has memory that is not mapped"
    );
    assert_eq!(map(&elastic, base, 0), Some(true));
    assert!(sim.parts(base, PART * PAGE).is_ok(), "what is mapped later");
    let other = range(&elastic, true);
    assert_eq!(map(&elastic, other, 0), Some(true));
    assert!(sim.parts(other, PART * PAGE).is_ok(), "a later range");
    assert_eq!(elastic.give_back(u64::MAX, true, Duration::ZERO), 0);
}

#[test]
fn the_end_of_a_context_ends_its_ranges() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = range(&elastic, true);
    map(&elastic, base, 0);
    elastic.allocated(base, PAGE, PAGE, None);
    sim.end_context(CONTEXT);
    elastic.end();
    assert_eq!(
        (sim.in_pages(), elastic.has_range(base, PAGE)),
        ((0, 0), false)
    );
    assert_eq!(map(&elastic, base, 0), None);
}

#[test]
fn a_range_and_a_default_segment_are_not_freed_as_the_other() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let (ours, theirs) = (segment(&elastic, PART), range(&elastic, true));
    map(&elastic, theirs, 0);
    assert!(
        !elastic.has_range(ours, PAGE),
        "the allocator has no part of it"
    );
    assert_eq!(elastic.map(ours, PAGE), None);
    assert_eq!(elastic.unmap(ours, PAGE), None);
    for (base, is_range) in [(ours, true), (theirs, false)] {
        assert_eq!(elastic.free(base, is_range, |_| panic!("it stays")), None);
        assert!(elastic.find(base).is_some());
        assert_eq!(elastic.free(base, !is_range, |_| ()), Some(Ok(None)));
        assert_eq!(elastic.find(base), None);
    }
    // The addresses of the range are the allocator's to give back.
    let driver = &elastic.pages().driver;
    driver.unreserve(theirs, PAGES * PAGE);
    assert_eq!(sim.findings(), Vec::<String>::new());
}
