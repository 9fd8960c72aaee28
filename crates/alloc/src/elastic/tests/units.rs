//! Tests of single properties.

use crate::elastic::{Allocation, Elastic, Mode, PAGE, Trouble};
use crate::handles::{Context, Stream};
use crate::sim::{Call, Error, Probe, Sim, World};
use std::sync::Arc;
use std::time::Duration;

mod ranges;

const CONTEXT: Context = Context(1);
const STREAM: Stream = Stream {
    context: CONTEXT,
    handle: 10,
    thread: 0,
};

fn device(pages: u64, mode: Mode) -> (Arc<World>, Elastic<Probe>) {
    let sim = Arc::new(World {
        sim: Sim::new(pages * PAGE, u64::MAX),
        pools: Vec::new(),
    });
    sim.add_context(CONTEXT, 0);
    sim.add_stream(STREAM);
    let probe = Probe {
        number: 0,
        world: Arc::downgrade(&sim),
    };
    (sim, Elastic::new(probe, (0, CONTEXT), mode))
}

/// Reserves `pages` pages for an allocator that is known to announce its tensors.
fn segment(elastic: &Elastic<Probe>, pages: u64) -> u64 {
    elastic
        .segment(pages * PAGE, pages * PAGE, true)
        .expect("it fits")
}

#[test]
fn memory_is_only_where_tensors_are() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = segment(&elastic, 10);
    assert_eq!(elastic.stats().held, 0);
    let born = elastic.allocated(base + PAGE - 512, 1024, 1024, None);
    assert_eq!(born, Allocation::default());
    assert_eq!(elastic.stats().held, 2 * PAGE);
    assert_eq!(
        sim.calls(0, Call::Allow),
        1,
        "adjacent pages are enabled together"
    );
    assert_eq!(elastic.freed(base + PAGE - 512, 1024, 0, false), None);
    let stats = elastic.stats();
    assert_eq!((stats.held, stats.spare), (2 * PAGE, 2 * PAGE));
}

#[test]
fn pages_move_under_pressure_and_always_where_the_least_is_held() {
    let held = |mode, pages| {
        let (_sim, elastic) = device(pages, mode);
        let bases = [segment(&elastic, 4), segment(&elastic, 4)];
        for base in bases {
            assert_eq!(
                elastic.allocated(base, 4 * PAGE, 4 * PAGE, None),
                Allocation::default()
            );
            assert_eq!(elastic.freed(base, 4 * PAGE, 0, false), None);
        }
        (elastic.stats().held / PAGE, elastic.stats().moves)
    };
    assert_eq!(held(Mode::Pressure, 100), (8, 0));
    assert_eq!(held(Mode::Pressure, 5), (5, 3));
    assert_eq!(held(Mode::Least, 100), (4, 4));
}

#[test]
fn a_segment_is_refused_that_does_not_fit_beside_what_lives() {
    let (_sim, elastic) = device(8, Mode::Pressure);
    let base = segment(&elastic, 8);
    elastic.allocated(base, 5 * PAGE, 5 * PAGE, None);
    assert_eq!(elastic.segment(4 * PAGE, 4 * PAGE, true), None);
    let base_of_less = elastic.segment(4 * PAGE, 2 * PAGE, true);
    elastic.free(base_of_less.expect("its first tensor fits"), false, |_| ());
    segment(&elastic, 3);
    elastic.freed(base, 5 * PAGE, 0, false);
    segment(&elastic, 8);
}

#[test]
fn without_room_a_page_is_the_hosts_and_goes_back() {
    let (sim, elastic) = device(2, Mode::Pressure);
    let (one, two) = (segment(&elastic, 2), segment(&elastic, 2));
    elastic.allocated(one, 2 * PAGE, 2 * PAGE, None);
    let born = elastic.allocated(two, PAGE, 3 * PAGE, None);
    assert_eq!((born.on_host, born.missing), (1, 0));
    elastic.freed(two, PAGE, 2 * PAGE, false);
    elastic.freed(one, 2 * PAGE, 0, false);
    assert_eq!(elastic.give_back(u64::MAX, true, Duration::ZERO), 2 * PAGE);
    assert_eq!(sim.in_pages(), (0, 0));
}

#[test]
fn pages_of_a_new_allocator_have_memory_until_it_announces() {
    let (_sim, elastic) = device(100, Mode::Least);
    let base = elastic.segment(4 * PAGE, PAGE, false).expect("it fits");
    assert_eq!(elastic.stats().in_use, 4 * PAGE);
    assert!(elastic.allocated(base, PAGE, PAGE, None).proves);
    let stats = elastic.stats();
    assert_eq!((stats.in_use, stats.spare), (PAGE, 3 * PAGE));
}

#[test]
fn memory_that_stays_spare_goes_back_in_time() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = segment(&elastic, 60);
    elastic.allocated(base, 50 * PAGE, 50 * PAGE, None);
    elastic.freed(base, 50 * PAGE, 0, false);
    let given: Vec<u64> = (0..3).map(|_| elastic.decay()).collect();
    assert_eq!(given, [0; 3]);
    elastic.allocated(base, PAGE, PAGE, None);
    elastic.freed(base, PAGE, 0, false);
    let given: Vec<u64> = (0..6).map(|_| elastic.decay() / PAGE).collect();
    assert_eq!(given, [0, 46, 0, 0, 4, 0], "the first piece was used since");
    assert_eq!(sim.in_pages(), (0, 0));
}

#[test]
fn a_page_goes_back_behind_many_that_were_used_since() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = segment(&elastic, 60);
    for page in (0..60).rev() {
        elastic.allocated(base + page * PAGE, PAGE, PAGE, None);
        elastic.freed(base + page * PAGE, PAGE, 0, false);
    }
    let given: Vec<u64> = (0..2).map(|_| elastic.decay()).collect();
    assert_eq!(given, [0; 2]);
    // All pages but the one that was emptied last.
    elastic.allocated(base + PAGE, 59 * PAGE, 59 * PAGE, None);
    let given: Vec<u64> = (0..3).map(|_| elastic.decay() / PAGE).collect();
    assert_eq!(given.iter().sum::<u64>(), 1, "{given:?}");
    assert_eq!(sim.in_pages(), (59 * PAGE, 0));
}

#[test]
fn what_is_wrong_is_told_once_and_ends_all_moves() {
    type Step = fn(&Elastic<Probe>, u64) -> Option<Trouble>;
    type Expected = fn(u64) -> Trouble;
    let steps: [(Step, Expected); 6] = [
        (
            |e, base| e.allocated(base + PAGE, PAGE, 3 * PAGE, None).trouble,
            |_| Trouble::Sum {
                ours: 2 * PAGE,
                theirs: 3 * PAGE,
            },
        ),
        (
            |e, base| e.freed(base + PAGE, PAGE, 0, false),
            |base| Trouble::Unborn(base + PAGE),
        ),
        (
            |e, base| e.freed(base, PAGE / 2, PAGE / 2, false),
            Trouble::Resized,
        ),
        (
            |e, base| e.allocated(base, 512, PAGE + 512, None).trouble,
            Trouble::Overlaps,
        ),
        (
            |e, base| {
                e.allocated(base + 3 * PAGE, 2 * PAGE, 3 * PAGE, None)
                    .trouble
            },
            |base| Trouble::Straddles(base + 3 * PAGE),
        ),
        (
            |e, base| e.free(base, false, |_| ())?.ok()?,
            Trouble::FreedLive,
        ),
    ];
    for (step, trouble) in steps {
        let (_sim, elastic) = device(100, Mode::Least);
        let (base, other) = (segment(&elastic, 4), segment(&elastic, 4));
        elastic.allocated(base, PAGE, PAGE, None);
        assert_eq!(step(&elastic, base), Some(trouble(base)));
        assert_eq!(step(&elastic, base), None, "said before");
        assert_eq!(elastic.segment(PAGE, PAGE, true), None);
        let all = elastic.find(other).and_then(|found| found.backed);
        assert_eq!(all, Some(other), "all pages have memory");
        let held = elastic.stats().held;
        assert_eq!(elastic.give_back(u64::MAX, true, Duration::ZERO), 0);
        assert_eq!(elastic.stats().held, held);
    }
}

#[test]
fn other_devices_may_use_what_is_there_and_what_comes() {
    let (sim, elastic) = device(100, Mode::Pressure);
    let base = segment(&elastic, 4);
    elastic.allocated(base, PAGE, PAGE, None);
    elastic.set_access(vec![1]).expect("no call fails");
    elastic.allocated(base + PAGE, PAGE, 2 * PAGE, None);
    assert!(sim.is_accessible(0, 0b11));
    let calls = sim.calls(0, Call::Allow);
    elastic.change_access(1, true).expect("no call fails");
    assert_eq!(sim.calls(0, Call::Allow), calls, "it has access");
    sim.fail(Some((Call::Allow, 1, Error::Failed)));
    assert_eq!(elastic.change_access(2, true), Err(Error::Failed));
    assert_eq!(elastic.change_access(2, true), Err(Error::Failed));
    sim.fail(None);
    elastic.set_access(Vec::new()).expect("no call fails");
    assert!(sim.is_accessible(0, 0b1));
}

#[test]
fn the_end_of_a_context_ends_its_segments() {
    let (sim, elastic) = device(100, Mode::Least);
    let base = segment(&elastic, 4);
    elastic.allocated(base, 4 * PAGE, 4 * PAGE, None);
    sim.returned(base);
    elastic.end();
    assert_eq!(sim.in_pages(), (0, 0));
    assert_eq!(elastic.find(base), None);
}

#[test]
fn a_pinned_segment_shows_all_its_memory_and_another_none() {
    let (_sim, elastic) = device(100, Mode::Pressure);
    let base = segment(&elastic, 10);
    elastic.allocated(base, 512, 512, None);
    assert_eq!(elastic.backing(base), None, "its memory may go");
    assert!(elastic.pin(base + PAGE));
    let (found, pages) = elastic.backing(base + 3 * PAGE).expect("it is pinned");
    assert_eq!((found.base, found.bytes), (base, 10 * PAGE));
    let places: Vec<u64> = pages.iter().map(|(at, _)| (at - base) / PAGE).collect();
    assert_eq!(places, Vec::from_iter(0..10));
    assert_eq!(elastic.backing(base + 10 * PAGE), None);
}

/// Sizes of the pieces of a range, in pages.
fn pieces(sim: &Sim, address: u64, pages: u64) -> Vec<u64> {
    let parts = sim.parts(address, pages * PAGE).expect("all is mapped");
    parts.iter().map(|(_, _, bytes)| bytes / PAGE).collect()
}

#[test]
fn a_large_tensor_has_large_pieces_which_move_as_one() {
    let (sim, elastic) = device(20, Mode::Pressure);
    let (one, two) = (segment(&elastic, 20), segment(&elastic, 20));
    elastic.allocated(one, 19 * PAGE, 19 * PAGE, None);
    assert_eq!(pieces(&sim, one, 19), [4, 4, 4, 4, 2, 1]);
    elastic.freed(one, 19 * PAGE, 0, false);
    elastic.allocated(two, 19 * PAGE, 19 * PAGE, None);
    assert_eq!(pieces(&sim, two, 19), [4, 4, 4, 4, 2, 1]);
    let stats = elastic.stats();
    assert_eq!((stats.moves, stats.held), (6, 19 * PAGE));
}

#[test]
fn a_page_that_another_tensor_may_share_is_a_piece_of_its_own() {
    let (sim, elastic) = device(20, Mode::Pressure);
    let base = segment(&elastic, 20);
    elastic.allocated(base + PAGE / 2, 16 * PAGE, 16 * PAGE, None);
    assert_eq!(pieces(&sim, base, 17), [1, 4, 4, 4, 2, 1, 1]);
    // The rest of the last page serves a small tensor, which keeps no other page.
    let rest = base + 16 * PAGE + PAGE / 2;
    elastic.allocated(rest, 512, 16 * PAGE + 512, None);
    elastic.freed(base + PAGE / 2, 16 * PAGE, 512, false);
    assert_eq!(elastic.stats().spare, 16 * PAGE);
}

#[test]
fn memory_is_spare_when_all_pages_of_its_piece_are_empty() {
    let (_sim, elastic) = device(40, Mode::Pressure);
    let base = segment(&elastic, 40);
    elastic.allocated(base, 8 * PAGE, 8 * PAGE, None);
    elastic.freed(base, 8 * PAGE, 0, false);
    elastic.allocated(base + PAGE, 512, 512, None);
    let stats = elastic.stats();
    assert_eq!((stats.in_use, stats.spare), (2 * PAGE, 6 * PAGE));
    elastic.freed(base + PAGE, 512, 0, false);
    assert_eq!(elastic.stats().spare, 8 * PAGE);
}

#[test]
fn small_pieces_become_one_for_a_large_tensor_and_a_large_one_several() {
    let (sim, elastic) = device(16, Mode::Pressure);
    let (one, two) = (segment(&elastic, 16), segment(&elastic, 16));
    for page in 0..16 {
        elastic.allocated(one + page * PAGE, PAGE, (page + 1) * PAGE, None);
    }
    for page in 0..16 {
        elastic.freed(one + page * PAGE, PAGE, (15 - page) * PAGE, false);
    }
    elastic.allocated(two, 16 * PAGE, 16 * PAGE, None);
    assert_eq!(pieces(&sim, two, 16), [4; 4]);
    elastic.freed(two, 16 * PAGE, 0, false);
    elastic.allocated(one + PAGE, 3 * PAGE, 3 * PAGE, None);
    assert_eq!(pieces(&sim, one + PAGE, 3), [1; 3]);
}

#[test]
fn pieces_are_smaller_once_memory_was_not_enough() {
    let (sim, elastic) = device(32, Mode::Pressure);
    let (one, two) = (segment(&elastic, 32), segment(&elastic, 32));
    elastic.allocated(one, 32 * PAGE, 32 * PAGE, None);
    assert_eq!(pieces(&sim, one, 32), [4; 8]);
    assert_eq!(elastic.allocated(two, PAGE, 33 * PAGE, None).on_host, 1);
    assert_eq!(
        elastic.allocated(two + PAGE, PAGE, 34 * PAGE, None).on_host,
        1
    );
    elastic.freed(one, 32 * PAGE, 2 * PAGE, false);
    elastic.allocated(two + 2 * PAGE, 30 * PAGE, 32 * PAGE, None);
    assert_eq!(pieces(&sim, two + 2 * PAGE, 30)[0], 1);
}

#[test]
fn the_least_is_what_was_in_use_at_most() {
    let (_sim, elastic) = device(100, Mode::Least);
    let (one, two) = (segment(&elastic, 40), segment(&elastic, 40));
    elastic.allocated(one, 32 * PAGE, 32 * PAGE, None);
    elastic.freed(one, 32 * PAGE, 0, false);
    elastic.give_back(16 * PAGE, true, Duration::ZERO);
    elastic.allocated(two, 8 * PAGE, 8 * PAGE, None);
    assert_eq!(elastic.stats().moves, 0, "as much was in use before");
    elastic.allocated(two + 8 * PAGE, 32 * PAGE, 40 * PAGE, None);
    assert_eq!(elastic.stats().held, 40 * PAGE);
}

/// Allocates and frees two tensors in turn, in segments of their own. Returns the number of map
/// calls.
fn step(sim: &Sim, elastic: &Elastic<Probe>, bases: [u64; 2], is_elsewhere: bool) -> u64 {
    let before = sim.calls(0, Call::Map);
    for base in bases {
        assert_eq!(
            elastic.allocated(base, 4 * PAGE, 4 * PAGE, Some(1)),
            Allocation::default()
        );
        let grant = sim.granted(base, 4 * PAGE);
        sim.launch(STREAM, &[(base, 4 * PAGE, grant)]);
        sim.returned(base);
        assert_eq!(elastic.freed(base, 4 * PAGE, 0, is_elsewhere), None);
    }
    sim.calls(0, Call::Map) - before
}

#[test]
fn a_step_that_repeats_maps_nothing_and_waits_for_nothing() {
    let (sim, elastic) = device(5, Mode::Pressure);
    let bases = [segment(&elastic, 4), segment(&elastic, 4)];
    let mapped: Vec<u64> = (0..4).map(|_| step(&sim, &elastic, bases, false)).collect();
    assert_eq!(mapped, [8, 0, 0, 0]);
    assert_eq!(sim.calls(0, Call::Wait), 0);
    assert_eq!((elastic.stats().held, elastic.stats().moves), (5 * PAGE, 3));
    assert_eq!(sim.findings(), Vec::<String>::new());
}

#[test]
fn memory_that_another_stream_used_is_waited_for() {
    let (sim, elastic) = device(5, Mode::Pressure);
    let bases = [segment(&elastic, 4), segment(&elastic, 4)];
    step(&sim, &elastic, bases, true);
    assert_eq!(sim.calls(0, Call::Wait), 1);
    assert_eq!(sim.findings(), Vec::<String>::new());
}

#[test]
fn memory_of_the_host_is_the_devices_again_when_that_has_some() {
    let (_sim, elastic) = device(2, Mode::Pressure);
    let (one, two) = (segment(&elastic, 2), segment(&elastic, 2));
    elastic.allocated(one, 2 * PAGE, 2 * PAGE, None);
    assert_eq!(elastic.allocated(two, PAGE, 3 * PAGE, None).on_host, 1);
    elastic.freed(two, PAGE, 2 * PAGE, false);
    assert_eq!(
        elastic.allocated(two, PAGE, 3 * PAGE, None).on_host,
        0,
        "it keeps it"
    );
    assert_eq!(elastic.stats().on_host, PAGE);
    elastic.freed(two, PAGE, 2 * PAGE, false);
    elastic.freed(one, 2 * PAGE, 0, false);
    // The event that covers the host's page was recorded with the next one.
    elastic.decay();
    elastic.allocated(two, PAGE, PAGE, None);
    assert_eq!(elastic.stats().on_host, 0);
}

#[test]
fn memory_of_the_host_is_not_kept_by_an_idle_piece() {
    let (sim, elastic) = device(2, Mode::Pressure);
    let (one, two) = (segment(&elastic, 2), segment(&elastic, 2));
    elastic.allocated(one, 2 * PAGE, 2 * PAGE, None);
    assert_eq!(elastic.allocated(two, PAGE, 3 * PAGE, None).on_host, 1);
    // The device gets more memory.
    sim.set_capacity(8 * PAGE);
    elastic.allocated(two + PAGE, PAGE, 4 * PAGE, None);
    elastic.decay();
    elastic.freed(two, PAGE, 3 * PAGE, false);
    elastic.decay();
    elastic.allocated(two, PAGE, 4 * PAGE, None);
    assert_eq!(elastic.stats().on_host, 0);
}

#[test]
fn memory_that_two_pieces_share_is_one_pieces_when_announcements_are_wrong() {
    let (sim, elastic) = device(40, Mode::Least);
    let bases = [segment(&elastic, 4), segment(&elastic, 4)];
    step(&sim, &elastic, bases, false);
    assert_eq!(elastic.stats().held, 4 * PAGE);
    assert!(elastic.freed(bases[0], PAGE, 0, false).is_some());
    let parts = bases.map(|base| sim.parts(base, 4 * PAGE).expect("all is mapped"));
    let shared = parts[0].iter().filter(|part| parts[1].contains(part));
    assert_eq!((shared.count(), elastic.stats().held), (0, 8 * PAGE));
    assert_eq!(sim.findings(), Vec::<String>::new());
}

#[test]
fn idle_pieces_give_their_memory_in_the_order_in_which_they_were_left() {
    let (sim, elastic) = device(4, Mode::Pressure);
    let (one, two) = (segment(&elastic, 3), segment(&elastic, 3));
    let allocated = |address, pages| elastic.allocated(address, PAGE, pages * PAGE, Some(1));
    (0..3).for_each(|page| {
        allocated(one + page * PAGE, page + 1);
    });
    let parts = |address| sim.parts(address, PAGE).expect("it is mapped");
    let was = [2, 0, 1].map(|page| parts(one + page * PAGE));
    for (left, page) in [2, 0, 1].into_iter().enumerate() {
        elastic.freed(one + page * PAGE, PAGE, (2 - left as u64) * PAGE, false);
    }
    assert_eq!(
        (elastic.stats().in_use, elastic.stats().spare),
        (0, 3 * PAGE)
    );
    // The device has one more page. After it, memory is shared in the order in which it was left.
    (0..3).for_each(|page| {
        allocated(two + page * PAGE, page + 1);
    });
    assert_eq!(
        [1, 2].map(|page| parts(two + page * PAGE)),
        [was[0].clone(), was[1].clone()]
    );
    assert_eq!((elastic.stats().moves, elastic.stats().held), (2, 4 * PAGE));
}

#[test]
fn a_tick_without_shortage_lets_idle_pieces_keep_their_memory_again() {
    let (sim, elastic) = device(8, Mode::Pressure);
    let bases = [segment(&elastic, 4), segment(&elastic, 4)];
    step(&sim, &elastic, bases, false);
    assert!(elastic.keeps_idle());
    // Another library in the process asks for a page.
    assert_eq!(elastic.give_back(PAGE, true, Duration::ZERO), PAGE);
    assert!(!elastic.keeps_idle());
    elastic.decay();
    assert!(elastic.keeps_idle());
    step(&sim, &elastic, bases, false);
    assert_eq!(elastic.stats().held, 8 * PAGE);
    let (sim, elastic) = device(5, Mode::Pressure);
    let bases = [segment(&elastic, 4), segment(&elastic, 4)];
    step(&sim, &elastic, bases, false);
    elastic.decay();
    assert!(!elastic.keeps_idle(), "the device has no more");
}
