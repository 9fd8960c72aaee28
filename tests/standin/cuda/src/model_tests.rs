//! Tests of each kind of error that the oracle must report. Beside each is its correct twin,
//! without a finding.

use super::*;
use crate::finish::Finish;

/// Two streams and a context, which most tests need.
struct Bench {
    model: Model,
    context: ContextId,
    a: Lane,
    b: Lane,
}

const BLOCK: (u64, u64) = (0x1000, 0x100);

impl Bench {
    fn new(a: Kind, b: Kind) -> Bench {
        let mut model = Model::default();
        let context = model.open_context(1);
        let mut lane = |kind, name| match kind {
            Kind::Legacy => model.legacy(context),
            kind => model.open_lane(context, kind, name),
        };
        let (a, b) = (lane(a, 0xa), lane(b, 0xb));
        Bench {
            model,
            context,
            a,
            b,
        }
    }

    fn streams() -> Bench {
        Bench::new(Kind::NonBlocking, Kind::NonBlocking)
    }

    fn write(&mut self, lane: Lane) {
        let touch = Touch::write(BLOCK.0, BLOCK.1);
        self.model.submit(lane, What::Kernel, &[touch], 0, 0);
    }

    fn read(&mut self, lane: Lane) {
        let touch = Touch::read(BLOCK.0, BLOCK.1);
        self.model.submit(lane, What::Copy, &[touch], 0, 0);
    }

    fn races(&mut self) -> usize {
        let findings = self.model.take_findings();
        findings
            .iter()
            .filter(|finding| finding.starts_with("race: "))
            .count()
    }
}

#[test]
fn two_streams_without_an_event() {
    for (first_writes, second_writes) in [(true, true), (true, false), (false, true)] {
        let mut bench = Bench::streams();
        let (a, b) = (bench.a, bench.b);
        if first_writes {
            bench.write(a)
        } else {
            bench.read(a)
        }
        if second_writes {
            bench.write(b)
        } else {
            bench.read(b)
        }
        assert_eq!(bench.races(), 1, "{first_writes} {second_writes}");
    }
    let mut twin = Bench::streams();
    let (a, b) = (twin.a, twin.b);
    twin.read(a);
    twin.read(b);
    assert_eq!(twin.races(), 0, "two reads");
    let mut twin = Bench::streams();
    twin.write(a);
    twin.read(a);
    twin.write(a);
    assert_eq!(twin.races(), 0, "one stream");
}

#[test]
fn an_event_orders_what_came_before_its_record() {
    let mut twin = Bench::streams();
    let (a, b) = (twin.a, twin.b);
    twin.write(a);
    let event = twin.model.record(a, 0);
    twin.model.wait(b, &event);
    twin.write(b);
    assert_eq!(twin.races(), 0);

    let mut too_early = Bench::streams();
    let event = too_early.model.record(a, 0);
    too_early.write(a);
    too_early.model.wait(b, &event);
    too_early.write(b);
    assert_eq!(too_early.races(), 1, "recorded before the work");

    let mut too_late = Bench::streams();
    too_late.write(a);
    let event = too_late.model.record(a, 0);
    too_late.write(b);
    too_late.model.wait(b, &event);
    assert_eq!(too_late.races(), 1, "waited for after the work");
}

#[test]
fn order_passes_through_a_third_stream() {
    let mut bench = Bench::streams();
    let (a, b) = (bench.a, bench.b);
    let c = bench.model.open_lane(bench.context, Kind::NonBlocking, 0xc);
    bench.write(a);
    let first = bench.model.record(a, 0);
    bench.model.wait(c, &first);
    let second = bench.model.record(c, 0);
    bench.model.wait(b, &second);
    bench.write(b);
    assert_eq!(bench.races(), 0);
}

#[test]
fn the_legacy_stream_orders_blocking_streams_only() {
    for (kind, races) in [(Kind::Blocking, 0), (Kind::NonBlocking, 1)] {
        let mut after = Bench::new(kind, Kind::Legacy);
        let (stream, legacy) = (after.a, after.b);
        after.write(stream);
        after.write(legacy);
        assert_eq!(after.races(), races, "legacy after {kind:?}");

        let mut before = Bench::new(kind, Kind::Legacy);
        before.write(legacy);
        before.write(stream);
        assert_eq!(before.races(), races, "legacy before {kind:?}");
    }
    // Between two blocking streams it orders only if it had an item between them.
    let mut bench = Bench::new(Kind::Blocking, Kind::Blocking);
    let (a, b) = (bench.a, bench.b);
    bench.write(a);
    bench.write(b);
    assert_eq!(bench.races(), 1);
    bench.write(a);
    bench.races();
    let legacy = bench.model.legacy(bench.context);
    bench.model.submit(legacy, What::Nothing, &[], 0, 0);
    bench.write(b);
    assert_eq!(bench.races(), 0);
}

#[test]
fn an_event_on_the_legacy_stream_does_not_cover_non_blocking_streams() {
    for (kind, races) in [(Kind::Blocking, 0), (Kind::NonBlocking, 1)] {
        let mut bench = Bench::new(kind, Kind::NonBlocking);
        let (a, b) = (bench.a, bench.b);
        bench.write(a);
        let legacy = bench.model.legacy(bench.context);
        let event = bench.model.record(legacy, 0);
        bench.model.wait(b, &event);
        bench.write(b);
        assert_eq!(bench.races(), races, "{kind:?}");
    }
}

#[test]
fn a_destroyed_stream_is_still_waited_for() {
    let mut bench = Bench::new(Kind::Blocking, Kind::NonBlocking);
    let (a, b) = (bench.a, bench.b);
    bench.write(a);
    bench.model.retire(a);
    let legacy = bench.model.legacy(bench.context);
    bench.read(legacy);
    assert_eq!(bench.races(), 0);
    let all = bench.model.record_context(bench.context);
    bench.model.wait(b, &all);
    bench.write(b);
    assert_eq!(bench.races(), 0);
}

#[test]
fn a_destroyed_non_blocking_stream_is_still_part_of_its_context() {
    let mut bench = Bench::streams();
    let (a, b) = (bench.a, bench.b);
    bench.write(a);
    bench.model.retire(a);
    let all = bench.model.record_context(bench.context);
    bench.model.wait(b, &all);
    bench.write(b);
    assert_eq!(bench.races(), 0);
}

#[test]
fn a_lane_used_again_leaves_its_former_duties() {
    let mut bench = Bench::new(Kind::Blocking, Kind::NonBlocking);
    let a = bench.a;
    bench.write(a);
    let target = bench.model.target(a);
    bench.model.retire(a);
    bench.model.observe(&target);
    let again = bench.model.open_lane(bench.context, Kind::NonBlocking, 0xc);
    assert_eq!(again, a);
    bench.write(again);
    let legacy = bench.model.legacy(bench.context);
    bench.write(legacy);
    assert_eq!(
        bench.races(),
        1,
        "the legacy stream does not wait for it any more"
    );
}

#[test]
fn a_new_stream_does_not_inherit_the_order_of_a_destroyed_one() {
    let mut bench = Bench::streams();
    let a = bench.a;
    bench.write(a);
    bench.model.retire(a);
    let new = bench.model.open_lane(bench.context, Kind::NonBlocking, 0xc);
    bench.write(new);
    assert_eq!(bench.races(), 1);
}

#[test]
fn a_context_event_covers_every_stream() {
    for kind in [Kind::Legacy, Kind::Blocking, Kind::NonBlocking] {
        let mut bench = Bench::new(kind, Kind::NonBlocking);
        let (a, b) = (bench.a, bench.b);
        bench.write(a);
        let event = bench.model.record_context(bench.context);
        bench.model.wait(b, &event);
        bench.write(b);
        assert_eq!(bench.races(), 0, "{kind:?}");

        let mut early = Bench::new(kind, Kind::NonBlocking);
        let event = early.model.record_context(early.context);
        early.write(a);
        early.model.wait(b, &event);
        early.write(b);
        assert_eq!(early.races(), 1, "{kind:?}, recorded before the work");
    }
}

#[test]
fn a_wait_on_the_context_orders_all_later_work() {
    for kind in [Kind::Legacy, Kind::Blocking, Kind::NonBlocking] {
        let mut bench = Bench::new(Kind::NonBlocking, kind);
        let (a, b) = (bench.a, bench.b);
        bench.write(a);
        let event = bench.model.record(a, 0);
        bench.model.wait_context(bench.context, &event);
        bench.write(b);
        assert_eq!(bench.races(), 0, "{kind:?}");
    }
    let mut later = Bench::streams();
    let a = later.a;
    later.write(a);
    let event = later.model.record(a, 0);
    later.model.wait_context(later.context, &event);
    let new = later.model.open_lane(later.context, Kind::NonBlocking, 0xc);
    later.write(new);
    assert_eq!(later.races(), 0, "a stream made afterwards");

    let mut other = Bench::streams();
    let elsewhere = other.model.open_context(2);
    let far = other.model.open_lane(elsewhere, Kind::NonBlocking, 0xd);
    other.write(a);
    let event = other.model.record(a, 0);
    other.model.wait_context(other.context, &event);
    other.write(far);
    assert_eq!(other.races(), 1, "another context's stream");
    let event = other.model.record_context(elsewhere);
    other.model.wait_context(other.context, &event);
    other.write(a);
    assert_eq!(other.races(), 0, "back again");
}

#[test]
fn what_the_host_has_seen_is_before_all_that_follows() {
    let mut bench = Bench::streams();
    let (a, b) = (bench.a, bench.b);
    bench.write(a);
    let target = bench.model.target(a);
    bench.write(b);
    assert_eq!(bench.races(), 1, "asked but not waited");
    bench.write(a);
    bench.races();
    bench.model.observe(&target);
    bench.write(b);
    assert_eq!(bench.races(), 1, "waited, but for an earlier point");
    let target = bench.model.target(b);
    bench.model.observe(&target);
    bench.write(a);
    assert_eq!(bench.races(), 0);
}

#[test]
fn time_alone_orders_nothing() {
    let mut bench = Bench::streams();
    let touch = [Touch::write(BLOCK.0, BLOCK.1)];
    bench.model.submit(bench.a, What::Kernel, &touch, 10, 0);
    bench
        .model
        .submit(bench.b, What::Kernel, &touch, 10, 1_000_000);
    assert_eq!(bench.races(), 1);
}

#[test]
fn memory_taken_away_under_work() {
    let bytes = BLOCK.0..BLOCK.0 + BLOCK.1;
    let mut bench = Bench::streams();
    let a = bench.a;
    bench.read(a);
    bench.model.withdraw(bytes.clone(), "unmap");
    let findings = bench.model.take_findings();
    assert!(
        findings.len() == 1 && findings[0].starts_with("unfinished: unmap"),
        "{findings:?}"
    );

    let mut twin = Bench::streams();
    twin.read(a);
    let target = twin.model.target(a);
    twin.model.observe(&target);
    twin.model.withdraw(bytes, "unmap");
    assert!(!twin.model.has_findings());
}

#[test]
fn what_is_forgiven_comes_to_no_finding() {
    let bytes = BLOCK.0..BLOCK.0 + BLOCK.1;
    let touch = [Touch::write(BLOCK.0, BLOCK.1)];
    let mut bench = Bench::streams();
    let (a, b) = (bench.a, bench.b);
    bench.model.submit(a, What::Kernel, &touch, 10, 0);
    bench.model.forgive(bytes.clone());
    bench.model.submit(b, What::Kernel, &touch, 10, 0);
    assert_eq!(bench.races(), 0);
    bench.model.forgive(bytes.clone());
    bench.model.withdraw(bytes.clone(), "unmap");
    assert!(!bench.model.has_findings());
    // Only earlier accesses are forgiven.
    bench.model.submit(a, What::Kernel, &touch, 10, 0);
    bench.model.withdraw(bytes, "unmap");
    assert!(bench.model.has_findings());
}

#[test]
fn work_takes_its_time_and_waits_for_what_it_comes_after() {
    let end = |finish: &Finish| finish.time().unwrap();
    let mut bench = Bench::streams();
    let (a, b) = (bench.a, bench.b);
    bench.model.submit(a, What::Kernel, &[], 100, 5);
    bench.model.submit(a, What::Kernel, &[], 100, 6);
    assert_eq!(end(bench.model.finish(a)), 205);
    bench.model.submit(b, What::Kernel, &[], 10, 6);
    assert_eq!(end(bench.model.finish(b)), 16);
    let event = bench.model.record(a, 7);
    bench.model.wait(b, &event);
    bench.model.submit(b, What::Kernel, &[], 10, 8);
    assert_eq!(end(bench.model.finish(b)), 215);
    let all = bench.model.record_context(bench.context);
    assert_eq!(end(&all.finish), 215);
    bench.model.wait_context(bench.context, &all);
    bench.model.submit(a, What::Kernel, &[], 1, 9);
    assert_eq!(end(bench.model.finish(a)), 216);
}

#[test]
fn lanes_are_used_again_once_their_work_is_known_done() {
    let mut model = Model::default();
    let context = model.open_context(1);
    let mut highest = 0;
    for round in 0..1000 {
        let lane = model.open_lane(context, Kind::NonBlocking, round);
        highest = highest.max(lane);
        model.submit(lane, What::Kernel, &[Touch::write(0, 8)], 0, 0);
        let target = model.target(lane);
        model.observe(&target);
        model.retire(lane);
    }
    assert!(highest < 4, "{highest}");
    assert!(!model.has_findings());
}

/// Compares random programs with a model that keeps the whole graph of the order of items.
#[test]
fn agrees_with_reachability() {
    let mut random = 99u64;
    let mut next = move |below: usize| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) as usize % below
    };
    for _ in 0..300 {
        let mut model = Model::default();
        let context = model.open_context(1);
        let kinds = [
            Kind::Legacy,
            Kind::Blocking,
            Kind::Blocking,
            Kind::NonBlocking,
            Kind::NonBlocking,
        ];
        let lanes: Vec<Lane> = (kinds.iter().enumerate())
            .map(|(index, kind)| match kind {
                Kind::Legacy => model.legacy(context),
                kind => model.open_lane(context, *kind, index as u64),
            })
            .collect();
        // For each item, event, stream and the host: the set of items ordered before.
        let mut known = vec![0u128; lanes.len()];
        let (mut host, mut gate) = (0u128, 0u128);
        let mut legacy_moved = vec![0u128; lanes.len()];
        let mut accesses: Vec<(usize, bool)> = Vec::new();
        let mut events: Vec<(Point, u128)> = Vec::new();
        let enter = |known: &mut Vec<u128>,
                     legacy_moved: &mut Vec<u128>,
                     lane: usize,
                     host: u128,
                     gate: u128| {
            known[lane] |= host | gate;
            match kinds[lane] {
                Kind::Legacy => {
                    (1..kinds.len())
                        .filter(|other| kinds[*other] == Kind::Blocking)
                        .for_each(|other| known[0] |= legacy_moved[other]);
                }
                Kind::Blocking => known[lane] |= legacy_moved[0],
                Kind::NonBlocking => {}
            }
        };
        for _ in 0..80 {
            let lane = next(lanes.len());
            match next(9) {
                0 => {
                    enter(&mut known, &mut legacy_moved, lane, host, gate);
                    if kinds[lane] == Kind::Legacy {
                        legacy_moved[0] = known[0];
                    }
                    events.push((model.record(lanes[lane], 0), known[lane]));
                }
                1 if !events.is_empty() => {
                    let (point, before) = &events[next(events.len())];
                    enter(&mut known, &mut legacy_moved, lane, host, gate);
                    known[lane] |= before;
                    legacy_moved[lane] = known[lane];
                    model.wait(lanes[lane], point);
                }
                2 if !events.is_empty() => {
                    let (point, before) = &events[next(events.len())];
                    host |= before;
                    model.observe(point);
                }
                3 if !events.is_empty() && next(3) == 0 => {
                    let (point, before) = &events[next(events.len())];
                    gate |= before;
                    model.wait_context(context, point);
                }
                _ if accesses.len() < 128 => {
                    enter(&mut known, &mut legacy_moved, lane, host, gate);
                    let (byte, writes) = (next(3), next(2) == 0);
                    let expected = accesses.iter().enumerate().any(|(index, (other, wrote))| {
                        other / 2 == byte && (writes || *wrote) && known[lane] >> index & 1 == 0
                    });
                    known[lane] |= 1 << accesses.len();
                    legacy_moved[lane] = known[lane];
                    accesses.push((2 * byte, writes));
                    let touch = Touch {
                        bytes: byte as u64..byte as u64 + 1,
                        writes,
                    };
                    model.submit(lanes[lane], What::Kernel, &[touch], 0, 0);
                    assert_eq!(model.has_findings(), expected);
                    if expected {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
}
