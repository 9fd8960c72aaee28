//! Tests of single accesses, and of random ones against a model that keeps everything.

use super::*;

fn item(lane: Lane, seq: u64) -> Item {
    let what = What::Kernel;
    Item { lane, what, seq }
}

fn clock(entries: &[(Lane, u64)]) -> Clock {
    let mut clock = Clock::default();
    entries
        .iter()
        .for_each(|(lane, seq)| clock.advance(*lane, *seq));
    clock
}

#[test]
fn unordered_accesses_conflict_when_one_writes() {
    let none = Clock::default();
    for (first_writes, second_writes) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let mut oracle = Oracle::default();
        assert_eq!(
            oracle.access(0..100, first_writes, item(0, 1), &clock(&[(0, 1)]), &none),
            None
        );
        let found = oracle.access(50..60, second_writes, item(1, 1), &clock(&[(1, 1)]), &none);
        assert_eq!(found.is_some(), first_writes || second_writes);
        if let Some(found) = found {
            assert_eq!((found.bytes, found.earlier_wrote), (50..60, first_writes));
        }
    }
}

#[test]
fn a_conflict_tells_how_the_earlier_one_reached_the_bytes() {
    let mut oracle = Oracle::default();
    let none = Clock::default();
    let reach = |addresses: Range<u64>, shift| Reach { addresses, shift };
    let (one, two) = (1000, 0u64.wrapping_sub(500));
    // Places 1000..1100 by addresses 0..100, then 1050..1060 by addresses 1550..1560.
    oracle.access(
        reach(0..100, one),
        true,
        item(0, 1),
        &clock(&[(0, 1)]),
        &none,
    );
    let second = reach(1550..1560, two);
    let found = oracle.access(second, true, item(1, 1), &clock(&[(1, 1)]), &none);
    let found = found.unwrap();
    assert_eq!((found.bytes, found.earlier_shift), (1050..1060, one));
    assert!(oracle.pending(1050..1060, &none).is_some());
    assert!(oracle.pending(0..1000, &none).is_none());
}

#[test]
fn ordered_accesses_do_not() {
    let mut oracle = Oracle::default();
    let none = Clock::default();
    oracle.access(0..100, true, item(0, 1), &clock(&[(0, 1)]), &none);
    let after = clock(&[(0, 1), (1, 1)]);
    assert_eq!(oracle.access(0..100, true, item(1, 1), &after, &none), None);
    // A third item that is ordered after the second only must be ordered after the first, too.
    assert!(
        oracle
            .access(0..1, true, item(0, 2), &clock(&[(0, 2)]), &none)
            .is_some()
    );
}

#[test]
fn every_reader_counts() {
    let mut oracle = Oracle::default();
    let none = Clock::default();
    for lane in 0..3 {
        oracle.access(0..100, false, item(lane, 1), &clock(&[(lane, 1)]), &none);
    }
    let missing_one = clock(&[(0, 1), (2, 1), (3, 1)]);
    let found = oracle
        .access(0..100, true, item(3, 1), &missing_one, &none)
        .unwrap();
    assert_eq!(found.earlier, item(1, 1));
}

#[test]
fn neighbours_do_not_touch() {
    let mut oracle = Oracle::default();
    let none = Clock::default();
    oracle.access(0..512, true, item(0, 1), &clock(&[(0, 1)]), &none);
    assert_eq!(
        oracle.access(512..1024, true, item(1, 1), &clock(&[(1, 1)]), &none),
        None
    );
    assert_eq!(
        oracle.access(1024..1024, true, item(1, 2), &clock(&[(1, 2)]), &none),
        None
    );
    assert!(
        oracle
            .access(511..513, false, item(2, 1), &clock(&[(2, 1)]), &none)
            .is_some()
    );
}

#[test]
fn pending_until_the_host_has_seen_it() {
    let mut oracle = Oracle::default();
    oracle.access(
        100..200,
        false,
        item(0, 7),
        &clock(&[(0, 7)]),
        &Clock::default(),
    );
    assert_eq!(
        oracle.pending(150..160, &clock(&[(0, 6)])),
        Some(item(0, 7))
    );
    assert_eq!(oracle.pending(150..160, &clock(&[(0, 7)])), None);
    assert_eq!(oracle.pending(200..300, &Clock::default()), None);
    oracle.forget(140..170);
    assert_eq!(oracle.pending(140..170, &Clock::default()), None);
    assert!(oracle.pending(100..141, &Clock::default()).is_some());
    assert!(oracle.pending(169..171, &Clock::default()).is_some());
}

#[test]
fn what_the_host_has_seen_is_forgotten() {
    let mut oracle = Oracle::default();
    for seq in 1..=100_000u64 {
        let host = clock(&[(0, seq - 1)]);
        oracle.access(
            seq * 16..seq * 16 + 8,
            true,
            item(0, seq),
            &clock(&[(0, seq)]),
            &host,
        );
    }
    assert!(oracle.len() <= SWEEP_FROM);
}

/// Compares random accesses with a model that keeps every access to every byte.
#[test]
fn agrees_with_the_naive_model() {
    let mut random = 12345u64;
    let mut next = move |below: u64| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    for _ in 0..500 {
        let mut oracle = Oracle::default();
        let mut naive: Vec<(u64, bool, Item)> = Vec::new();
        let mut clocks = vec![Clock::default(); 4];
        let mut host = Clock::default();
        let mut seqs = [0u64; 4];
        for _ in 0..150 {
            let lane = next(4) as Lane;
            match next(12) {
                0..6 => {
                    let other = clocks[next(4) as usize].clone();
                    clocks[lane as usize].join(&other);
                }
                6 if next(4) == 0 => {
                    host.join(&clocks[lane as usize]);
                }
                _ => {
                    seqs[lane as usize] += 1;
                    let me = item(lane, seqs[lane as usize]);
                    let clock = &mut clocks[lane as usize];
                    clock.join(&host);
                    clock.advance(lane, me.seq);
                    let start = next(100);
                    let bytes = start..start + 1 + next(8);
                    let writes = next(2) == 0;
                    let expected = naive.iter().any(|(byte, wrote, other)| {
                        bytes.contains(byte) && (writes || *wrote) && !other.is_before(clock)
                    });
                    let found = oracle.access(bytes.clone(), writes, me, clock, &host);
                    assert_eq!(found.is_some(), expected);
                    if expected {
                        // After a race the two histories may differ in the accesses that they keep.
                        break;
                    }
                    naive.extend(bytes.map(|byte| (byte, writes, me)));
                }
            }
        }
    }
}
