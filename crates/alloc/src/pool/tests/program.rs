//! Programs made of actions, and the conditions under which they run.

use super::machine::BOTH;
use crate::policy::Policy;
use crate::sim::{Call, Error};
use proptest::prelude::*;

pub const MIB: u64 = 1 << 20;

/// One action of a program. An index is taken modulo the number of items.
#[derive(Clone, Debug)]
pub enum Action {
    Allocate {
        pool: usize,
        /// The stream, or any stream of its context in the pool of `cudaMalloc`.
        stream: usize,
        bytes: u64,
        /// True if it writes the memory at once.
        writes: bool,
    },
    /// Frees on the stream that the block was allocated on, or on any stream after all use of the
    /// block.
    Free {
        block: usize,
        on: Option<usize>,
    },
    /// Frees without a stream, in a context.
    FreeAnywhere {
        block: usize,
        context: usize,
    },
    FreeTwice {
        pool: usize,
    },
    Launch {
        stream: usize,
        blocks: [usize; 2],
    },
    /// One stream waits for another.
    Order {
        stream: usize,
        after: usize,
    },
    /// The device completes some work.
    Step {
        stream: usize,
        times: usize,
    },
    NewStream {
        context: usize,
    },
    EndStream {
        stream: usize,
    },
    /// Waits for a stream or its context. Meanwhile another thread uses and frees `meanwhile`
    /// blocks.
    Synchronize {
        stream: usize,
        whole: bool,
        meanwhile: usize,
        fails: bool,
    },
    Capture {
        stream: usize,
    },
    EndCapture {
        graph: bool,
    },
    Derive {
        graph: usize,
    },
    Destroy {
        graph: usize,
    },
    Replay {
        stream: usize,
        graph: usize,
    },
    Access {
        pool: usize,
        on: bool,
    },
    Threshold {
        pool: usize,
        bytes: u64,
    },
    Orders {
        pool: usize,
        on: bool,
    },
    Export {
        block: usize,
    },
    Trim {
        pool: usize,
        keep: u64,
    },
    Decay,
    /// Another process asks for memory.
    GiveComplete {
        pool: usize,
        bytes: u64,
    },
    ResetPeaks {
        pool: usize,
    },
    EndContext {
        context: usize,
    },
    Reopen {
        pool: usize,
        max_size: u64,
    },
}

/// Way in which the last memory is freed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All work is synchronised, then the pools are trimmed.
    Synchronized,
    /// The work completes without a synchronisation; the pool finds out.
    Unseen,
    /// No request uses the memory for a while.
    Decay,
    /// One pool requests all memory there is.
    Large,
}

/// Conditions that a program runs under.
#[derive(Clone, Debug)]
pub struct Setting {
    pub policy: Policy,
    pub page: u64,
    pub spare: u64,
    pub piece: u64,
    pub orders: bool,
    pub waits: bool,
    /// Contexts of the pools' device.
    pub contexts: usize,
    pub max_size: u64,
    pub capacity: u64,
    pub limit: u64,
    pub fail: Option<(Call, u64, Error)>,
    pub ending: Ending,
    /// Number of threads that the program runs on in turn, with thread caches. 0: one thread, and
    /// no caches.
    pub threads: u64,
}

pub fn setting(policy: Policy) -> impl Strategy<Value = Setting> {
    let place = (
        prop_oneof![3 => Just(2 * MIB), 1 => Just(4 * MIB)],
        prop_oneof![2 => Just(20u64), 1 => Just(0), 1 => Just(300)],
        prop::sample::select(vec![2 * MIB, 4 * MIB, 16 * MIB]),
    );
    let calls = if policy == Policy::Vmm {
        vec![
            Call::Reserve,
            Call::Create,
            Call::Map,
            Call::Allow,
            Call::Forbid,
            Call::Record,
            Call::Order,
            Call::Query,
            Call::Wait,
        ]
    } else {
        vec![
            Call::Allocate,
            Call::Release,
            Call::Record,
            Call::Order,
            Call::Query,
            Call::Wait,
        ]
    };
    // Some calls cannot fail here: a failed call may be undone, and the undo may not fail.
    let error = prop_oneof![Just(Error::OutOfMemory), Just(Error::Failed)];
    let fail = prop_oneof![
        4 => Just(None),
        1 => (prop::sample::select(calls), 2..6u64, error).prop_map(Some)
    ];
    let capacity = prop_oneof![
        Just(48 * MIB),
        Just(128 * MIB),
        Just(512 * MIB),
        Just(1 << 33)
    ];
    let most = |off: u64| prop_oneof![4 => Just(off), 1 => (10..150u64).prop_map(|n| n * 2 * MIB)];
    let ending = prop_oneof![
        Just(Ending::Synchronized),
        Just(Ending::Unseen),
        Just(Ending::Decay),
        Just(Ending::Large)
    ];
    let orders = (prop::bool::weighted(0.8), any::<bool>(), 1..3usize);
    let threads = prop_oneof![4 => Just(0u64), 1 => Just(1), 1 => Just(3)];
    (
        place,
        orders,
        most(0),
        capacity,
        most(u64::MAX),
        fail,
        ending,
        threads,
    )
        .prop_map(
            move |(
                (page, spare, piece),
                (orders, waits, contexts),
                max_size,
                capacity,
                limit,
                fail,
                ending,
                threads,
            )| Setting {
                policy,
                page,
                spare,
                piece,
                orders,
                waits,
                contexts,
                max_size,
                capacity,
                limit,
                fail,
                ending,
                threads,
            },
        )
}

fn bytes() -> impl Strategy<Value = u64> {
    let nonsense = prop_oneof![
        Just(u64::MAX),
        Just(u64::MAX - 511),
        Just(u64::MAX - 512),
        Just(1 << 63),
        Just((1 << 63) + 1),
        Just((1 << 63) - 513),
        Just(1 << 41),
        Just((1 << 41) - 512),
        Just((1 << 41) + 1),
        Just(7 << 38)
    ];
    prop_oneof![
        60 => prop::sample::select(vec![1, 512, 4096, 300 << 10, MIB, 2 * MIB, 5 * MIB, 8 * MIB]),
        60 => 1..512u64 << 10,
        100 => (0..7u32, 512u64..1024).prop_map(|(shift, n)| n << (shift + 10)),
        1 => nonsense,
    ]
}

/// One action; `share` parts in 190 are about captures and graphs.
fn action(share: u32) -> impl Strategy<Value = Action> {
    let any_stream = 0..16usize;
    let stream = move || any_stream.clone();
    let pool = || prop_oneof![5 => Just(0usize), 1 => Just(1usize), 2 => Just(2usize)];
    let block = || 0..64usize;
    let memory = prop_oneof![
        60 => (prop_oneof![9 => pool(), 1 => Just(BOTH)], stream(), bytes(), prop::bool::weighted(0.9))
            .prop_map(|(pool, stream, bytes, writes)| Action::Allocate { pool, stream, bytes, writes }),
        25 => block().prop_map(|block| Action::Free { block, on: None }),
        25 => (block(), stream()).prop_map(|(block, on)| Action::Free { block, on: Some(on) }),
        4 => (block(), 0..8usize).prop_map(|(block, context)| Action::FreeAnywhere { block, context }),
        1 => pool().prop_map(|pool| Action::FreeTwice { pool }),
    ];
    let work = prop_oneof![
        40 => (stream(), [block(), block()]).prop_map(|(stream, blocks)| Action::Launch { stream, blocks }),
        5 => (stream(), stream()).prop_map(|(stream, after)| Action::Order { stream, after }),
        20 => (stream(), 1..8usize).prop_map(|(stream, times)| Action::Step { stream, times }),
        2 => (0..8usize).prop_map(|context| Action::NewStream { context }),
        2 => stream().prop_map(|stream| Action::EndStream { stream }),
        5 => (stream(), prop::bool::weighted(0.3), 0..3usize, prop::bool::weighted(0.1)).prop_map(
            |(stream, whole, meanwhile, fails)| Action::Synchronize { stream, whole, meanwhile, fails }
        ),
    ];
    let graphs = prop_oneof![
        2 => stream().prop_map(|stream| Action::Capture { stream }),
        3 => prop::bool::weighted(0.8).prop_map(|graph| Action::EndCapture { graph }),
        1 => (0..8usize).prop_map(|graph| Action::Derive { graph }),
        2 => (0..8usize).prop_map(|graph| Action::Destroy { graph }),
        4 => (stream(), 0..8usize).prop_map(|(stream, graph)| Action::Replay { stream, graph }),
    ];
    let keep = || prop_oneof![Just(0), 0..60 * MIB, Just(u64::MAX)];
    let rest = prop_oneof![
        4 => (pool(), any::<bool>()).prop_map(|(pool, on)| Action::Access { pool, on }),
        4 => (pool(), keep()).prop_map(|(pool, bytes)| Action::Threshold { pool, bytes }),
        2 => (pool(), any::<bool>()).prop_map(|(pool, on)| Action::Orders { pool, on }),
        1 => block().prop_map(|block| Action::Export { block }),
        6 => (pool(), keep()).prop_map(|(pool, keep)| Action::Trim { pool, keep }),
        12 => Just(Action::Decay),
        4 => (pool(), keep()).prop_map(|(pool, bytes)| Action::GiveComplete { pool, bytes }),
        2 => pool().prop_map(|pool| Action::ResetPeaks { pool }),
        2 => (0..8usize).prop_map(|context| Action::EndContext { context }),
        2 => (pool(), prop_oneof![Just(0), Just(40 * MIB)])
            .prop_map(|(pool, max_size)| Action::Reopen { pool, max_size }),
    ];
    prop_oneof![110 => memory, 70 => work, share => graphs, 10 => rest]
}

pub fn program(length: usize) -> impl Strategy<Value = Vec<Action>> {
    prop_oneof![
        3 => prop::collection::vec(action(10), 1..length),
        1 => prop::collection::vec(action(60), 1..length),
    ]
}
