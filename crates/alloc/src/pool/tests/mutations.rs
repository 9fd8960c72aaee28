//! Checks that every step that keeps memory safe is needed: a test fails without it.

use super::machine::run;
use super::program::{Action, Ending, MIB, Setting, program, setting};
use crate::mutation::Mutation;
use crate::policy::Policy;
use crate::sim::{Call, Mistake};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Most programs that are tried for one mistake.
const MOST: usize = 20_000;

/// Random programs, the same for every mistake, most of them with pages.
struct Programs {
    runner: TestRunner,
    made: Vec<(Setting, Vec<Action>)>,
}

impl Programs {
    fn new() -> Self {
        Programs {
            runner: TestRunner::deterministic(),
            made: Vec::new(),
        }
    }

    fn at(&mut self, n: usize) -> &(Setting, Vec<Action>) {
        while self.made.len() <= n {
            let policy = match self.made.len() % 8 {
                3 => Policy::Blocks,
                _ => Policy::Vmm,
            };
            let strategy = (setting(policy), program(200));
            let tree = strategy.new_tree(&mut self.runner);
            self.made.push(tree.expect("a program").current());
        }
        &self.made[n]
    }

    /// Tries programs until one fails because of the mistake. Returns the number of programs, and
    /// the error.
    fn until(&mut self, mistake: Mistake) -> Option<(usize, String)> {
        let script = script(mistake);
        let tried = if script.is_some() { 1 } else { MOST };
        (0..tried).find_map(|n| {
            let (setting, actions) = script.as_ref().unwrap_or_else(|| self.at(n));
            let finding = |mistake: Mistake| mistake.finding(|lie| run(setting, actions, lie));
            let noticed = finding(mistake)?;
            let alone = finding(Mistake::None);
            assert_eq!(alone, None, "goes wrong by itself: {setting:?} {actions:?}");
            Some((n + 1, noticed))
        })
    }
}

pub const PLAIN: Setting = Setting {
    threads: 0,
    policy: Policy::Vmm,
    page: 2 * MIB,
    spare: 20,
    piece: 4 * MIB,
    orders: true,
    waits: false,
    contexts: 1,
    max_size: 0,
    capacity: 1 << 30,
    limit: u64::MAX,
    fail: None,
    ending: Ending::Synchronized,
};

pub fn allocate(stream: usize, bytes: u64) -> Action {
    Action::Allocate {
        pool: 0,
        stream,
        bytes,
        writes: true,
    }
}

pub fn free(block: usize, stream: usize) -> Action {
    let on = Some(stream);
    Action::Free { block, on }
}

fn synchronize(stream: usize) -> Action {
    Action::Synchronize {
        stream,
        whole: false,
        meanwhile: 0,
        fails: false,
    }
}

/// Returns a program that shows a mistake which random programs seldom show.
fn script(mistake: Mistake) -> Option<(Setting, Vec<Action>)> {
    let capture = || Action::Capture { stream: 0 };
    let recorded = |block| Action::Launch {
        stream: 0,
        blocks: [block, block],
    };
    let end = |graph| Action::EndCapture { graph };
    let replay = |stream| Action::Replay { stream, graph: 0 };
    let Mistake::Of(mutation) = mistake else {
        return None;
    };
    let (setting, actions) = match mutation {
        // The block is handed out during one capture and freed during another.
        Mutation::NoHoldBack => (
            PLAIN,
            vec![
                capture(),
                allocate(0, 2 * MIB),
                recorded(0),
                end(true),
                capture(),
                free(0, 0),
                end(false),
                allocate(0, 2 * MIB),
                replay(0),
            ],
        ),
        // A stream waits for another and takes half of the memory freed there. A new stream takes
        // the other half.
        Mutation::KeepOrder => (
            PLAIN,
            vec![
                allocate(0, 2 * MIB),
                allocate(0, 2 * MIB),
                free(0, 0),
                free(0, 0),
                allocate(1, 2 * MIB),
                Action::EndStream { stream: 1 },
                Action::NewStream { context: 0 },
                allocate(2, 2 * MIB),
            ],
        ),
        // A graph's block was freed on a stream that ended. Another context's stream would get its
        // queue. The graph runs once more before it ends.
        Mutation::WaitElsewhere => (
            PLAIN,
            vec![
                allocate(0, 512),
                capture(),
                allocate(0, 2 * MIB),
                recorded(1),
                free(1, 0),
                end(true),
                synchronize(1),
                Action::EndStream { stream: 1 },
                free(0, 2),
                replay(1),
                Action::Destroy { graph: 0 },
                allocate(0, 2 * MIB),
            ],
        ),
        // The place with the fewest missing bytes takes a part of a large piece, and the rest is
        // too small.
        Mutation::NoLastResort => (
            Setting {
                page: 8 * MIB,
                piece: 8 * MIB,
                max_size: 48 * MIB,
                ..PLAIN
            },
            vec![
                allocate(0, 8 * MIB),
                allocate(0, 16 * MIB),
                allocate(0, 8 * MIB),
                allocate(0, 16 * MIB),
                free(1, 0),
                synchronize(0),
                Action::Threshold {
                    pool: 0,
                    bytes: u64::MAX,
                },
                allocate(0, 512),
                free(0, 0),
                free(1, 0),
                free(1, 0),
                synchronize(0),
                allocate(0, 32 * MIB + 4096),
            ],
        ),
        _ => return None,
    };
    Some((setting, actions))
}

/// Steps that keep this pool's memory safe.
const STEPS: [Mutation; 46] = [
    Mutation::NoFence,
    Mutation::OlderFence,
    Mutation::UseEarly,
    Mutation::UseForAll,
    Mutation::UnmergedForAll,
    Mutation::CacheForAll,
    Mutation::OrderOlder,
    Mutation::NoClose,
    Mutation::NoGiveUp,
    Mutation::RetireEarly,
    Mutation::AbsorbOlder,
    Mutation::AbsorbOther,
    Mutation::MergeSome,
    Mutation::NoConsolidate,
    Mutation::NoLastResort,
    Mutation::MoveEarly,
    Mutation::NoFenceAfterAlias,
    Mutation::NoFenceAfterFailure,
    Mutation::ReapEarly,
    Mutation::EvictEarly,
    Mutation::TakeBackEarly,
    Mutation::ReuseExported,
    Mutation::GiveUpKept,
    Mutation::BeyondSize,
    Mutation::NoQuarantine,
    Mutation::NoGroup,
    Mutation::NoGraphs,
    Mutation::NoDerived,
    Mutation::NoHoldBack,
    Mutation::ReturnOrdered,
    Mutation::QueryUnderCapture,
    Mutation::OrderUnderCapture,
    Mutation::WaitUnderCapture,
    Mutation::RecordUnderCapture,
    Mutation::NoLastEvent,
    Mutation::KeepStream,
    Mutation::KeepOrder,
    Mutation::EndQueueEarly,
    Mutation::WaitElsewhere,
    Mutation::OpenMark,
    Mutation::MarkOtherStreams,
    Mutation::MarkOtherContexts,
    Mutation::MarkDespitePeers,
    Mutation::EndAlone,
    Mutation::KeepEvents,
    Mutation::KeepBlocks,
];

#[test]
#[cfg_attr(miri, ignore = "too many programs")]
fn each_step_left_out_is_noticed() {
    let mut programs = Programs::new();
    Mistake::all_are_noticed(STEPS.map(Mistake::Of), |mistake| programs.until(mistake));
}

#[test]
#[cfg_attr(miri, ignore = "too many programs")]
fn each_call_without_effect_is_noticed() {
    let calls = [
        Call::Map,
        Call::Allow,
        Call::AllowPeers,
        Call::AllowAgain,
        Call::Forbid,
        Call::Unmap,
        Call::UnmapMoved,
        Call::UnmapTwin,
        Call::Release,
        Call::Record,
        Call::Order,
        Call::Query,
        Call::Wait,
        Call::Drain,
        Call::Locked,
    ];
    let mut programs = Programs::new();
    Mistake::all_are_noticed(calls.map(Mistake::Lie), |mistake| programs.until(mistake));
}
