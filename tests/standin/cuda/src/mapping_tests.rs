//! Tests of physical memory at several addresses. Races go by the memory, unmapping goes by the
//! address.

use super::*;
use crate::alias::PHYSICAL;

const SIZE: u64 = 0x1000;
/// Two addresses that map the same memory in most tests.
const ONE: u64 = 0x10_0000;
const TWO: u64 = 0x20_0000;

fn at(address: u64) -> Range<u64> {
    address..address + SIZE
}

/// Two streams, and one piece of memory mapped at both addresses.
struct Bench {
    model: Model,
    a: Lane,
    b: Lane,
}

impl Bench {
    fn new() -> Bench {
        let mut model = Model::default();
        let context = model.open_context(1);
        let mut lane = |name| model.open_lane(context, Kind::NonBlocking, name);
        let (a, b) = (lane(0xa), lane(0xb));
        model.map(at(ONE), PHYSICAL);
        model.map(at(TWO), PHYSICAL);
        Bench { model, a, b }
    }

    fn touch(&mut self, lane: Lane, address: u64, bytes: u64, writes: bool) {
        let touch = Touch {
            writes,
            ..Touch::read(address, bytes)
        };
        self.model.submit(lane, What::Kernel, &[touch], 0, 0);
    }

    fn write(&mut self, lane: Lane, address: u64) {
        self.touch(lane, address, SIZE, true);
    }

    /// Orders later work of the second lane after the work of the first so far.
    fn order(&mut self, first: Lane, second: Lane) {
        let point = self.model.record(first, 0);
        self.model.wait(second, &point);
    }

    /// Makes the host wait for a lane.
    fn see(&mut self, lane: Lane) {
        let target = self.model.target(lane);
        self.model.observe(&target);
    }

    fn findings(&mut self, kind: &str) -> usize {
        let findings = self.model.take_findings();
        let of_kind = |finding: &&String| finding.starts_with(kind);
        let found = findings.iter().filter(of_kind).count();
        assert_eq!(found, findings.len(), "{findings:?}");
        found
    }
}

#[test]
fn two_addresses_of_one_memory_race() {
    for (first, second, races) in [
        (true, true, 1),
        (true, false, 1),
        (false, true, 1),
        (false, false, 0),
    ] {
        let mut bench = Bench::new();
        let (a, b) = (bench.a, bench.b);
        bench.touch(a, ONE + 0x100, 0x100, first);
        bench.touch(b, TWO + 0x180, 0x100, second);
        let findings = bench.model.take_findings();
        assert_eq!(findings.len(), races, "{first} {second}: {findings:?}");
        if let [race] = findings.as_slice() {
            assert!(
                race.ends_with("bytes 0x200180..0x200200, the same memory as 0x100180..0x100200"),
                "{race}"
            );
        }
    }
    let mut apart = Bench::new();
    let (a, b) = (apart.a, apart.b);
    apart.touch(a, ONE, 0x100, true);
    apart.touch(b, TWO + 0x100, 0x100, true);
    assert_eq!(apart.findings("race"), 0, "other bytes of it");
}

#[test]
fn ordered_work_through_two_addresses_does_not_race() {
    let mut bench = Bench::new();
    let (a, b) = (bench.a, bench.b);
    bench.write(a, ONE);
    bench.order(a, b);
    bench.write(b, TWO);
    bench.order(b, a);
    bench.write(a, ONE);
    bench.see(a);
    bench.write(b, TWO);
    assert_eq!(bench.findings("race"), 0);
    bench.write(a, TWO);
    assert_eq!(bench.findings("race"), 1, "and then not any more");
}

#[test]
fn an_access_may_span_mappings_of_several_memories() {
    let mut bench = Bench::new();
    let (a, b) = (bench.a, bench.b);
    // Other memory beside the first address, which has a second address of its own.
    bench.model.map(at(ONE + SIZE), PHYSICAL + 0x10_0000);
    bench.model.map(at(TWO + 8 * SIZE), PHYSICAL + 0x10_0000);
    bench.touch(a, ONE, 2 * SIZE, true);
    bench.touch(b, TWO + 8 * SIZE, 8, false);
    assert_eq!(bench.findings("race"), 1, "in the second");
    bench.touch(b, TWO, 8, false);
    assert_eq!(bench.findings("race"), 1, "in the first");
}

#[test]
fn history_stays_with_the_memory_when_it_moves() {
    let mut bench = Bench::new();
    let (a, b) = (bench.a, bench.b);
    bench.write(a, ONE);
    bench.model.unmap(at(ONE), "unmap");
    assert_eq!(bench.findings("unfinished"), 1);
    bench.write(b, TWO);
    assert_eq!(bench.findings("race"), 1, "through what is left");
    // Other memory at the old address is unrelated to it.
    bench.model.map(at(ONE), PHYSICAL + 0x20_0000);
    bench.model.unmap(at(ONE), "unmap");
    assert_eq!(bench.findings("unfinished"), 0, "nobody used that");
    bench.model.map(at(ONE), PHYSICAL + 0x10_0000);
    bench.write(a, ONE);
    assert_eq!(bench.findings("race"), 0, "new memory");
    bench.see(a);
    bench.see(b);
    bench.model.unmap(at(TWO), "unmap");
    // Memory that gets the same places anew is unrelated, too.
    bench.model.map(at(TWO), PHYSICAL);
    bench.write(a, TWO);
    bench.model.forget(PHYSICAL..PHYSICAL + SIZE);
    bench.write(b, TWO);
    assert_eq!(bench.findings("race"), 0, "forgotten");
}

#[test]
fn a_mapping_may_lie_where_others_were() {
    let mut bench = Bench::new();
    let (a, b) = (bench.a, bench.b);
    bench.model.map(at(ONE + SIZE), PHYSICAL + SIZE);
    bench.model.unmap(ONE..ONE + 2 * SIZE, "unmap");
    bench.model.map(ONE..ONE + 2 * SIZE, PHYSICAL + 0x10_0000);
    bench.write(a, TWO);
    bench.touch(b, ONE + SIZE, SIZE, true);
    assert_eq!(bench.findings("race"), 0, "other memory");
    bench.model.map(at(TWO + SIZE), PHYSICAL + 0x10_0000 + SIZE);
    bench.write(a, TWO + SIZE);
    assert_eq!(bench.findings("race"), 1, "the second half of it");
}

#[test]
fn unmapping_goes_by_the_address_that_work_uses() {
    for writes in [true, false] {
        let mut bench = Bench::new();
        let a = bench.a;
        bench.touch(a, ONE + 0x10, 1, writes);
        bench.model.unmap(at(TWO), "unmap");
        assert_eq!(bench.findings("unfinished"), 0, "not this one");
        bench.model.unmap(at(ONE), "unmap");
        assert_eq!(bench.findings("unfinished"), 1, "but this");

        let mut twin = Bench::new();
        twin.touch(a, ONE + 0x10, 1, writes);
        twin.see(a);
        twin.model.unmap(at(ONE), "unmap");
        assert_eq!(twin.findings("unfinished"), 0, "waited for");
    }
    // Later work through the other address does not hide the earlier use.
    let mut bench = Bench::new();
    let (a, b) = (bench.a, bench.b);
    bench.write(a, ONE);
    bench.order(a, b);
    bench.write(b, TWO);
    bench.model.unmap(at(ONE), "unmap");
    assert_eq!(bench.findings("unfinished"), 1);
}

/// Compares random operations with a model that keeps every access to every byte, by address and by
/// place.
#[test]
fn agrees_with_the_naive_model() {
    let mut random = 2024u64;
    let mut next = move |below: usize| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) as usize % below
    };
    // Windows of four bytes for addresses, and pieces of four bytes of memory.
    const LENGTH: usize = 4;
    let window = |index: usize| (index * LENGTH) as u64..((index + 1) * LENGTH) as u64;
    let (mut races, mut cuts) = (0, 0);
    for _ in 0..400 {
        let mut model = Model::default();
        let context = model.open_context(1);
        let lanes: Vec<Lane> = (0..3)
            .map(|name| model.open_lane(context, Kind::NonBlocking, name))
            .collect();
        let mut windows: [Option<usize>; 6] = [None; 6];
        // For each lane and the host: the accesses known to come before, as bits.
        let (mut known, mut host) = ([0u128; 3], 0u128);
        // Piece, byte of it, window, and true for a write.
        let mut accesses: Vec<Vec<(usize, usize, usize, bool)>> = Vec::new();
        while accesses.len() < 100 {
            let (lane, index) = (next(3), next(6));
            match (next(8), windows[index]) {
                (0, None) => {
                    let piece = next(3);
                    model.map(window(index), PHYSICAL + (piece * LENGTH) as u64);
                    windows[index] = Some(piece);
                }
                (0, Some(_)) if next(3) == 0 => {
                    let is_used = (0..accesses.len()).any(|number| {
                        let uses = |(_, _, by, _): &(usize, usize, usize, bool)| *by == index;
                        host >> number & 1 == 0 && accesses[number].iter().any(uses)
                    });
                    model.unmap(window(index), "unmap");
                    assert_eq!(model.take_findings().len(), usize::from(is_used));
                    cuts += usize::from(is_used);
                    windows[index] = None;
                    // Accesses through an unmapped window matter to its memory only.
                    let gone = accesses.iter_mut().flatten();
                    gone.filter(|access| access.2 == index)
                        .for_each(|access| access.2 = usize::MAX);
                }
                (1 | 2, _) => {
                    let other = next(3);
                    let point = model.record(lanes[other], 0);
                    model.wait(lanes[lane], &point);
                    known[other] |= host;
                    known[lane] |= known[other] | host;
                }
                (3, _) if next(4) == 0 => {
                    let target = model.target(lanes[lane]);
                    model.observe(&target);
                    host |= known[lane];
                }
                (4.., Some(_)) => {
                    let start = index * LENGTH + next(LENGTH);
                    let (length, writes) = (1 + next(6), next(2) == 0);
                    let mut mine = Vec::new();
                    for byte in start..start + length {
                        let by = byte / LENGTH;
                        if let Some(piece) = windows.get(by).copied().flatten() {
                            mine.push((piece, byte % LENGTH, by, writes));
                        }
                    }
                    // Accesses stay within memory mapped without a hole: the driver refuses others.
                    if mine.len() < length {
                        continue;
                    }
                    known[lane] |= host;
                    let expected = accesses.iter().enumerate().any(|(number, other)| {
                        known[lane] >> number & 1 == 0
                            && other.iter().any(|theirs| {
                                (theirs.3 || writes)
                                    && mine.iter().any(|m| (m.0, m.1) == (theirs.0, theirs.1))
                            })
                    });
                    // One access may reach the same bytes twice, through two windows.
                    let touch = Touch {
                        writes,
                        ..Touch::read(start as u64, length as u64)
                    };
                    model.submit(lanes[lane], What::Kernel, &[touch], 0, 0);
                    let found = model.take_findings();
                    assert_eq!(found.len(), usize::from(expected), "{found:?}");
                    if expected {
                        races += 1;
                        // After a race the two histories may differ in the accesses that they keep.
                        break;
                    }
                    known[lane] |= 1 << accesses.len();
                    accesses.push(mine);
                }
                _ => {}
            }
        }
    }
    assert!(races > 50 && cuts > 50, "{races} races, {cuts} cuts");
}
