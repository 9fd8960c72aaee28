//! Programs made of actions, and the conditions under which they run.

use crate::policy::Reuse;
use crate::sim::Call;
use proptest::prelude::*;

/// One thing that a program does. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub enum Action {
    Allocate {
        context: usize,
        bytes: u64,
        ready_only: bool,
    },
    Free {
        block: usize,
    },
    FreeTwice,
    Launch {
        context: usize,
        blocks: [usize; 2],
    },
    Finish {
        work: usize,
    },
    Synchronize {
        context: usize,
        after: usize,
    },
    Peer {
        accessor: usize,
        owner: usize,
        on: bool,
    },
    /// A stream of a context begins to capture; `refuses`: the driver would refuse allocations and
    /// frees meanwhile.
    Capture {
        context: usize,
        refuses: bool,
    },
    EndCapture {
        capture: usize,
        graph: bool,
    },
    /// The driver invalidates a capture, and the pool is told.
    BreakCapture {
        capture: usize,
    },
    Derive {
        graph: usize,
    },
    Destroy {
        graph: usize,
    },
    Replay {
        context: usize,
        graph: usize,
    },
    Export {
        block: usize,
    },
    Trim {
        device: Option<i32>,
        keep: u64,
    },
    Decay,
    /// Another process asks for memory.
    GiveComplete {
        device: i32,
    },
    Reset {
        context: usize,
    },
}

/// Under which conditions it runs.
#[derive(Clone, Debug)]
pub struct Setting {
    pub reuse: Reuse,
    pub cache_max: Option<u64>,
    pub share: u32,
    pub margin: u64,
    pub capacity: u64,
    pub events: bool,
    pub fail: Option<(Call, u64)>,
}

pub const MIB: u64 = 1 << 20;

pub fn setting() -> impl Strategy<Value = Setting> {
    let reuse =
        prop_oneof![4 => Just(Reuse::Order), 1 => Just(Reuse::Wait), 1 => Just(Reuse::Strict)];
    let cache_max = prop_oneof![3 => Just(None), 1 => (0u64..40).prop_map(|n| Some(n * MIB))];
    let call = prop_oneof![
        Just(Call::Record),
        Just(Call::Order),
        Just(Call::Query),
        Just(Call::Wait),
        Just(Call::Synchronize)
    ];
    let fail = prop_oneof![4 => Just(None), 1 => (call, 1u64..5).prop_map(Some)];
    let share = prop_oneof![Just(100u32), Just(150), Just(100_000)];
    let little = (10u64..80).prop_map(|n| n * MIB);
    let capacity = prop_oneof![little, Just(60 * MIB), Just(200 * MIB), Just(1 << 40)];
    let events = prop_oneof![6 => Just(true), 1 => Just(false)];
    (reuse, cache_max, share, 0..20 * MIB, capacity, events, fail).prop_map(
        |(reuse, cache_max, share, margin, capacity, events, fail)| Setting {
            reuse,
            cache_max,
            share,
            margin,
            capacity,
            events,
            fail,
        },
    )
}

pub fn action() -> impl Strategy<Value = Action> {
    let bytes = prop_oneof![
        Just(512u64),
        1..5000u64,
        Just(MIB),
        100_000..3 * MIB,
        Just(4 * MIB),
        2 * MIB..24 * MIB
    ];
    prop_oneof![
        30 => (0..4usize, bytes, any::<bool>())
            .prop_map(|(context, bytes, ready_only)| Action::Allocate { context, bytes, ready_only }),
        24 => (0..64usize).prop_map(|block| Action::Free { block }),
        1 => Just(Action::FreeTwice),
        24 => (0..4usize, [0..64usize, 0..64usize])
            .prop_map(|(context, blocks)| Action::Launch { context, blocks }),
        8 => (0..64usize).prop_map(|work| Action::Finish { work }),
        2 => (0..4usize, 0..3usize).prop_map(|(context, after)| Action::Synchronize { context, after }),
        3 => (0..4usize, 0..4usize, any::<bool>())
            .prop_map(|(accessor, owner, on)| Action::Peer { accessor, owner, on }),
        2 => (0..4usize, any::<bool>())
            .prop_map(|(context, refuses)| Action::Capture { context, refuses }),
        4 => (0..4usize, any::<bool>())
            .prop_map(|(capture, graph)| Action::EndCapture { capture, graph }),
        1 => (0..4usize).prop_map(|capture| Action::BreakCapture { capture }),
        1 => (0..8usize).prop_map(|graph| Action::Derive { graph }),
        2 => (0..8usize).prop_map(|graph| Action::Destroy { graph }),
        4 => (0..4usize, 0..8usize).prop_map(|(context, graph)| Action::Replay { context, graph }),
        1 => (0..64usize).prop_map(|block| Action::Export { block }),
        1 => (prop_oneof![Just(None), (0..2i32).prop_map(Some)], 0..30 * MIB)
            .prop_map(|(device, keep)| Action::Trim { device, keep }),
        2 => Just(Action::Decay),
        1 => (0..2i32).prop_map(|device| Action::GiveComplete { device }),
        1 => (0..4usize).prop_map(|context| Action::Reset { context }),
    ]
}

pub fn program(length: usize) -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec(action(), 1..length)
}
