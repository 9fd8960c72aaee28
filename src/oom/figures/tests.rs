use super::*;
use crate::oom::explain::Explanation;

const MIB: u64 = 1 << 20;

fn cache(allocated: u64, reserved: u64) -> Option<Cache> {
    Some(Cache {
        allocated: allocated * MIB,
        reserved: reserved * MIB,
        largest_free: Some(8 * MIB),
        waiting: 0,
    })
}

/// Makes a device of 1,000 MiB: this process holds 600, of which 100 are allocated.
fn situation(size: u64, free: u64) -> Situation {
    Situation {
        size: size * MIB,
        free: Some(free * MIB),
        total: Some(1000 * MIB),
        held: 600 * MIB,
        cache: cache(600, 600),
        ..Situation::default()
    }
}

/// Returns the smallest set, and the causes that would have been enough instead.
fn causes(of: &Situation) -> [Vec<Cause>; 2] {
    let found = Explanation::by_figures(of);
    [found.causes, found.instead]
}

fn first(of: &Situation) -> Cause {
    causes(of)[0][0]
}

#[test]
fn larger_than_the_device_or_the_limit() {
    let most = 1000 * MIB;
    let by_limit = false;
    let [of, _] = causes(&situation(1001, 400));
    assert_eq!(of, [Cause::TooLarge { most, by_limit }]);
    let mut one = situation(700, 400);
    one.limit = Some(650 * MIB);
    let (most, by_limit) = (650 * MIB, true);
    assert_eq!(causes(&one)[0], [Cause::TooLarge { most, by_limit }]);
}

#[test]
fn the_limit_and_not_pieces() {
    let mut one = situation(100, 400);
    one.limit = Some(640 * MIB);
    let (limit, held) = (640 * MIB, 600 * MIB);
    let by_limit = Cause::OurLimit { limit, held };
    assert_eq!(causes(&one), [vec![by_limit], vec![]]);
    // The device could not serve it either: without the limit alone it does not fit, nor without
    // other processes alone.
    one.free = Some(50 * MIB);
    let others = Cause::OtherProcesses { bytes: 350 * MIB };
    assert_eq!(causes(&one), [vec![by_limit, others], vec![]]);
    one.limit = None;
    assert_eq!(causes(&one), [vec![others], vec![]]);
}

#[test]
fn peers_under_the_limit_and_not_the_limit() {
    let mut one = situation(100, 400);
    one.limit = Some(900 * MIB);
    one.peers = vec![Peer {
        held: 250 * MIB,
        who: "process 7, rank 1".to_string(),
        name: "train.py".to_string(),
    }];
    let (limit, held) = (900 * MIB, 600 * MIB);
    let peers = Cause::Peers { bytes: 250 * MIB };
    let by_limit = Cause::OurLimit { limit, held };
    assert_eq!(causes(&one), [vec![peers], vec![by_limit]]);
    // This process alone is above what is left of the limit.
    one.limit = Some(650 * MIB);
    assert_eq!(
        first(&one),
        Cause::OurLimit {
            limit: 650 * MIB,
            held
        }
    );
}

#[test]
fn pieces_under_a_limit_are_pieces() {
    let mut one = situation(100, 400);
    (one.limit, one.cache) = (Some(600 * MIB), cache(400, 600));
    let is_it = matches!(first(&one), Cause::Fragmentation { cached, .. } if cached == 200 * MIB);
    assert!(is_it, "{one:?}");
}

#[test]
fn what_iterations_keep_is_before_the_limit() {
    let mut one = situation(100, 400);
    (one.limit, one.grows) = (Some(640 * MIB), Some([300 * MIB, MIB]));
    let [of, instead] = causes(&one);
    assert!(matches!(of[..], [Cause::Growth { .. }]));
    assert!(matches!(instead[..], [Cause::OurLimit { .. }]));
    // The leak keeps less than was missing.
    one.grows = Some([10 * MIB, MIB]);
    assert!(matches!(causes(&one)[0][..], [Cause::OurLimit { .. }]));
}

#[test]
fn a_small_leak_is_no_cause_of_what_pieces_refuse() {
    // 710 MiB asked, 10 free, 6.5 GiB cached in pieces, 69 MiB left behind.
    let mut one = situation(710, 10);
    (one.total, one.held) = (Some(8000 * MIB), 7800 * MIB);
    one.cache = cache(1200, 7800);
    one.grows = Some([69 * MIB, 3 * MIB]);
    let [of, instead] = causes(&one);
    assert!(matches!(of[..], [Cause::Fragmentation { .. }]), "{of:?}");
    assert_eq!(instead, []);
    // A leak that alone is enough is the cause.
    one.grows = Some([705 * MIB, 30 * MIB]);
    assert!(matches!(first(&one), Cause::Growth { .. }));
}

#[test]
fn a_framework_that_did_not_ask() {
    let mut one = situation(100, 400);
    (one.by_framework, one.asked_below) = (true, Some(false));
    let (free, reserved) = (Some(400 * MIB), 600 * MIB);
    assert_eq!(first(&one), Cause::FrameworkLimit { free, reserved });
    // A snapshot has only the free memory.
    one.asked_below = None;
    assert_eq!(first(&one), Cause::FrameworkLimit { free, reserved });
    one.free = Some(MIB);
    assert!(!matches!(first(&one), Cause::FrameworkLimit { .. }));
    one.asked_below = Some(true);
    assert!(!matches!(first(&one), Cause::FrameworkLimit { .. }));
}

#[test]
fn memory_that_waits() {
    let mut one = situation(100, 10);
    one.cache = cache(500, 600).map(|cache| Cache {
        waiting: 95 * MIB,
        ..cache
    });
    assert_eq!(first(&one), Cause::Waiting { bytes: 95 * MIB });
    one.size = 200 * MIB;
    assert!(!matches!(first(&one), Cause::Waiting { .. }));
}

#[test]
fn memory_of_other_pools_and_layers() {
    let mut one = situation(100, 10);
    (one.by_framework, one.cache) = (true, cache(400, 600));
    one.in_other_pools = 195 * MIB;
    let (bytes, place) = (195 * MIB, Place::Pool);
    assert_eq!(first(&one), Cause::CachedElsewhere { bytes, place });
    (one.on_other_streams, one.in_other_pools) = (195 * MIB, 0);
    let place = Place::Stream;
    assert_eq!(first(&one), Cause::CachedElsewhere { bytes, place });
    one.on_other_streams = 0;
    assert!(matches!(
        first(&one),
        Cause::Fragmentation {
            of_framework: true,
            ..
        }
    ));
    let mut one = situation(100, 10);
    one.in_framework = bytes;
    let place = Place::Framework;
    assert_eq!(first(&one), Cause::CachedElsewhere { bytes, place });
}

#[test]
fn pieces() {
    let mut one = situation(100, 10);
    one.cache = cache(400, 600);
    let (cached, largest) = (200 * MIB, Some(8 * MIB));
    let of_framework = false;
    let pieces = Cause::Fragmentation {
        cached,
        largest,
        of_framework,
    };
    assert_eq!(causes(&one)[0], [pieces]);
}

#[test]
fn other_processes() {
    let [of, _] = causes(&situation(100, 10));
    assert_eq!(of, [Cause::OtherProcesses { bytes: 390 * MIB }]);
    // The memory that a driver needs for itself.
    let mut one = situation(100, 10);
    one.held = 910 * MIB;
    assert_eq!(causes(&one)[0], [Cause::Full { short: 90 * MIB }]);
}

#[test]
fn the_driver_refuses_and_nothing_is_known() {
    let free = 400 * MIB;
    let [of, _] = causes(&situation(100, 400));
    assert_eq!(of, [Cause::DriverRefused { free }]);
    let mut one = situation(100, 0);
    (one.free, one.cache) = (None, None);
    assert_eq!(causes(&one)[0], [Cause::Unknown]);
}

#[test]
fn figures_without_sense_are_no_panic() {
    let one = Situation {
        size: u64::MAX,
        free: Some(u64::MAX),
        total: Some(0),
        held: u64::MAX,
        cache: Some(Cache {
            allocated: u64::MAX,
            reserved: 1,
            largest_free: None,
            waiting: u64::MAX,
        }),
        rest: u64::MAX,
        in_other_pools: u64::MAX,
        on_other_streams: u64::MAX,
        in_framework: u64::MAX,
        grows: Some([u64::MAX; 2]),
        limit: Some(u64::MAX),
        peers: Vec::new(),
        by_framework: true,
        asked_below: None,
        policy: None,
    };
    assert!(!causes(&one)[0].is_empty());
}
