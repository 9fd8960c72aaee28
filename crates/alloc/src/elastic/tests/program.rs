//! Random programs and settings.

use crate::elastic::Mode;
use crate::sim::{Call, Error};
use proptest::prelude::*;

/// One action of a program. An index in a list wraps around.
#[derive(Clone, Debug)]
pub enum Action {
    Allocate {
        stream: usize,
        bytes: u64,
    },
    Free {
        tensor: usize,
    },
    /// Work on a stream that uses tensors.
    Launch {
        stream: usize,
        tensors: [usize; 2],
    },
    /// A stream completes a piece of its work.
    Step {
        n: usize,
    },
    FinishUnseen,
    Synchronize,
    Capture {
        stream: usize,
    },
    EndCapture,
    Replay {
        graph: usize,
    },
    DestroyGraph {
        graph: usize,
    },
    EmptyCache,
    /// The device has this many pages after this.
    Capacity {
        pages: u64,
    },
    /// Another library takes pages, or frees all of its pages.
    Others {
        pages: usize,
    },
    GiveBack {
        pages: u64,
        waits: bool,
    },
    Decay,
    /// Another process asks for memory.
    GiveComplete {
        pages: u64,
    },
    /// A tensor's address leaves the process.
    Export {
        tensor: usize,
    },
    /// Memory that its allocator does not announce, in a segment of its own.
    Uncached {
        bytes: u64,
    },
    /// The allocator forgets to announce a tensor.
    Silent {
        stream: usize,
        bytes: u64,
    },
    /// The next announced sum is wrong.
    WrongSum,
}

/// Conditions that a program runs under.
#[derive(Clone, Debug)]
pub struct Setting {
    pub mode: Mode,
    /// Number of pages of the device.
    pub pages: u64,
    /// Every n-th call of this kind fails with this error.
    pub fail: Option<(Call, u64, Error)>,
    /// True if the allocator's announcements may be wrong.
    pub errs: bool,
    /// True if the allocator reserves ranges and maps parts of them (expandable segments).
    pub expands: bool,
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        1u64..4096,
        1u64..(1 << 20),
        (1u64 << 20)..(6 << 20),
        (6u64 << 20)..(12 << 20),
        // Large enough for pieces of several pages.
        (16u64 << 20)..(40 << 20),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let n = || 0usize..64;
    prop_oneof![
        12 => (0usize..3, bytes()).prop_map(|(stream, bytes)| Action::Allocate { stream, bytes }),
        9 => n().prop_map(|tensor| Action::Free { tensor }),
        10 => (0usize..3, [n(), n()]).prop_map(|(stream, tensors)| Action::Launch { stream, tensors }),
        6 => n().prop_map(|n| Action::Step { n }),
        1 => Just(Action::FinishUnseen),
        1 => Just(Action::Synchronize),
        2 => (0usize..3).prop_map(|stream| Action::Capture { stream }),
        3 => Just(Action::EndCapture),
        3 => n().prop_map(|graph| Action::Replay { graph }),
        1 => n().prop_map(|graph| Action::DestroyGraph { graph }),
        1 => Just(Action::EmptyCache),
        1 => (4u64..48).prop_map(|pages| Action::Capacity { pages }),
        1 => (0usize..4).prop_map(|pages| Action::Others { pages }),
        1 => (1u64..8, any::<bool>()).prop_map(|(pages, waits)| Action::GiveBack { pages, waits }),
        2 => Just(Action::Decay),
        1 => (1u64..8).prop_map(|pages| Action::GiveComplete { pages }),
        1 => n().prop_map(|tensor| Action::Export { tensor }),
        1 => bytes().prop_map(|bytes| Action::Uncached { bytes }),
        1 => (0usize..3, bytes()).prop_map(|(stream, bytes)| Action::Silent { stream, bytes }),
        1 => Just(Action::WrongSum),
    ]
}

/// Programs of fewer than `most` actions.
pub fn program(most: usize) -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec(action(), 1..most)
}

/// Settings of all kinds, chosen at random.
pub fn setting() -> impl Strategy<Value = Setting> {
    let mode = prop_oneof![Just(Mode::Pressure), Just(Mode::Least)];
    let call = prop_oneof![
        Just(Call::Reserve),
        Just(Call::Create),
        Just(Call::Map),
        Just(Call::Allow),
        Just(Call::Unmap),
        Just(Call::Record),
        Just(Call::Query),
        Just(Call::Wait),
        Just(Call::Drain),
    ];
    let error = prop_oneof![Just(Error::OutOfMemory), Just(Error::Failed)];
    let fail = prop::option::weighted(0.3, (call, 1u64..8, error));
    let errs = prop::bool::weighted(0.2);
    (mode, 4u64..48, fail, errs, any::<bool>()).prop_map(|(mode, pages, fail, errs, expands)| {
        Setting {
            mode,
            pages,
            fail,
            errs,
            expands,
        }
    })
}
