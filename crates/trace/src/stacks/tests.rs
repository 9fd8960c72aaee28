//! The tree by itself: against a naive one, with tiny capacities, with threads, and with damage.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

impl<W: Word> Stacks<'_, W> {
    fn push_id(&self, memo: &Memo, root: u32, frames: &[u64]) -> u32 {
        self.push(memo, root, frames).id
    }
}

fn words(nodes: usize) -> Vec<AtomicU64> {
    let count = (layout::FIRST as usize + nodes) * layout::WORDS;
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn stacks(words: &[AtomicU64]) -> Stacks<'_, AtomicU64> {
    Stacks::new(
        words,
        Index::for_entries(words.len() / layout::WORDS).unwrap(),
    )
}

fn read(words: &[AtomicU64], id: u32) -> Vec<StackNode> {
    Stack::of(words, layout::WORDS, id).collect()
}

fn count(words: &[AtomicU64], at: usize) -> u64 {
    words[at].load(Ordering::Relaxed)
}

const RANGE: StackNode = StackNode::Range {
    name: u32::MAX,
    domain: 9,
};

fn frames(addresses: &[u64]) -> Vec<StackNode> {
    addresses.iter().copied().map(StackNode::Frame).collect()
}

#[test]
fn a_stack_comes_back_innermost_first_with_the_ranges_last() {
    let words = words(20);
    let (stacks, memo) = (stacks(&words), Memo::new());
    let outer = stacks.child(0, RANGE);
    let inner = stacks.child(outer, StackNode::Range { name: 8, domain: 0 });
    let id = stacks.push_id(&memo, inner, &[3, 2, !SITE]);
    let mut expected = frames(&[3, 2, !SITE]);
    expected.extend([StackNode::Range { name: 8, domain: 0 }, RANGE]);
    assert_eq!(read(&words, id), expected);
    assert_eq!(read(&words, 0), []);
    assert_eq!(stacks.push_id(&memo, inner, &[]), inner);
    // The same stack again, with and without the memo.
    assert_eq!(stacks.push_id(&memo, inner, &[3, 2, !SITE]), id);
    assert_eq!(stacks.push_id(&Memo::new(), inner, &[3, 2, !SITE]), id);
    assert_eq!(count(&words, layout::HANDED_OUT), 5);
    // A frame is not the range of the same value.
    assert_ne!(
        stacks.child(0, StackNode::Frame(u64::from(u32::MAX) | 9 << 32)),
        outer
    );
    assert_eq!(broken(&words, layout::WORDS), 0);
}

#[test]
fn when_it_is_full_stacks_lose_their_innermost_frames() {
    let words = words(4);
    let (stacks, memo) = (stacks(&words), Memo::new());
    let four = stacks.push_id(&memo, 0, &[5, 4, 3, 2, 1]);
    assert_eq!(read(&words, four), frames(&[4, 3, 2, 1]));
    // A missing frame is never confused with a present one.
    assert_eq!(
        stacks.push_id(&memo, 0, &[4, 5, 3, 2, 1]),
        stacks.push_id(&memo, 0, &[3, 2, 1])
    );
    assert_eq!(stacks.push_id(&memo, 0, &[5, 4, 3, 2, 1]), four);
    assert_eq!(stacks.child(four, RANGE), four);
    assert_eq!(count(&words, layout::CUT), 4);
    assert_eq!(count(&words, layout::HANDED_OUT), 4);
}

#[test]
fn a_memo_is_good_for_one_part_and_one_root() {
    let (first, second) = (words(9), words(9));
    let (one, other) = (stacks(&first), stacks(&second));
    let memo = Memo::new();
    other.push_id(&Memo::new(), 0, &[7, 8, 9]);
    one.push_id(&memo, 0, &[2, 1]);
    let id = other.push_id(&memo, 0, &[2, 1]);
    assert_eq!(read(&second, id), frames(&[2, 1]));
    let root = other.child(0, RANGE);
    let id = other.push_id(&memo, root, &[2, 1]);
    assert_eq!(read(&second, id), [frames(&[2, 1]), vec![RANGE]].concat());
}

#[test]
fn frames_beyond_the_memo_are_kept_too() {
    const DEPTH: u64 = if cfg!(miri) { 270 } else { 700 };
    let words = words(DEPTH as usize + 20);
    let (stacks, memo) = (stacks(&words), Memo::new());
    let mut stack: Vec<_> = (0..DEPTH).rev().collect();
    for innermost in [1000, 1001, 1000] {
        stack[0] = innermost;
        let id = stacks.push_id(&memo, 0, &stack);
        assert_eq!(read(&words, id), frames(&stack));
    }
    // 100 outer frames, then others.
    stack.drain(..DEPTH as usize - 100);
    stack[0] = 1002;
    let id = stacks.push_id(&memo, 0, &stack);
    assert_eq!(read(&words, id), frames(&stack));
    assert_eq!(count(&words, layout::HANDED_OUT), DEPTH + 2);
}

#[test]
#[cfg_attr(miri, ignore = "a million nodes")]
fn a_full_part_finds_all_of_its_nodes() {
    const NODES: u64 = (1 << 20) - layout::FIRST as u64;
    let words = words(NODES as usize);
    let stacks = stacks(&words);
    // Four in five have a parent other than the root; addresses close together, as in code.
    let node = |n: u64| {
        let parent = if n.is_multiple_of(5) { 0 } else { n / 7 + 4 };
        (parent as u32, StackNode::Frame(0x5555_0000_0000 + n * 4))
    };
    for n in 0..NODES {
        let (parent, node) = node(n);
        assert_ne!(stacks.child(parent, node), parent);
    }
    for n in 0..NODES {
        let (parent, node) = node(n);
        assert_eq!(stacks.child(parent, node), n as u32 + layout::FIRST);
    }
    assert_eq!(count(&words, layout::CUT), 0);
    assert_eq!(broken(&words, layout::WORDS), 0);
}

#[test]
fn threads_that_push_the_same_stacks_get_the_same_ids() {
    const ROUNDS: u64 = if cfg!(miri) { 4 } else { 2000 };
    let words = words(4 * (ROUNDS as usize + 9));
    let stacks = stacks(&words);
    let ids: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let run = || {
            let memo = Memo::new();
            let stack = |n: u64| [n, n % 3, n % 2, 7];
            (0..ROUNDS)
                .map(|n| stacks.push_id(&memo, 0, &stack(n)))
                .collect()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(ids.iter().all(|other| *other == ids[0]));
    for (n, id) in (0..).zip(&ids[0]) {
        assert_eq!(read(&words, *id), frames(&[n, n % 3, n % 2, 7]));
    }
    // Unused copies: part of the nodes handed out, at most the rest.
    let handed_out = count(&words, layout::HANDED_OUT);
    assert!(
        (ROUNDS..=4 * (ROUNDS + 9)).contains(&handed_out),
        "{handed_out}"
    );
    assert_eq!(broken(&words, layout::WORDS), 0);
}

/// A chain as only a damaged file has one.
#[test]
#[cfg_attr(miri, ignore = "long")]
fn a_chain_longer_than_any_stack_ends() {
    let words = words(6000);
    let stacks = stacks(&words);
    let last = (0..6000).fold(0, |parent, n| stacks.child(parent, StackNode::Frame(n)));
    let read = read(&words, last);
    assert_eq!((read.len(), read[0]), (4096, StackNode::Frame(5999)));
}

#[test]
fn a_damaged_chain_ends() {
    let words = words(3);
    let id = stacks(&words).push_id(&Memo::new(), 0, &[3, 2, 1]);
    let first = id as usize * layout::WORDS;
    let put = |at: usize, word: u64| words[at].store(word, Ordering::Relaxed);
    let node = layout::COMMITTED | 1 << 32;
    // A node that is its own parent; one with a later parent; one that is not complete.
    for (head, count) in [(node | u64::from(id), 1), (node | 1 << 20, 1), (1 << 32, 1)] {
        put(first, head);
        assert_eq!(read(&words, id), []);
        assert_eq!(broken(&words, layout::WORDS), count);
    }
    // A kind of a later version: left out.
    put(first, layout::COMMITTED | 77 << 32 | u64::from(id - 1));
    assert_eq!(read(&words, id), frames(&[2, 1]));
    // Never begun, as a kill may leave it: nothing refers to it.
    put(first, 0);
    assert_eq!(
        (read(&words, id).len(), broken(&words, layout::WORDS)),
        (0, 0)
    );
    assert_eq!(read(&words, u32::MAX), []);
}

/// Step of one thread: a stack, or a range below the last range or the root.
#[derive(Clone, Debug)]
enum Step {
    Push(Vec<u64>),
    Open(u32),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(0_u64..4, 0..6).prop_map(Step::Push),
        1 => (1_u32..3).prop_map(Step::Open),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Comparison with a map from whole stacks to ids, of a limited number of entries.
    #[test]
    fn as_a_naive_tree(capacity in 0_usize..60, steps in prop::collection::vec(step(), 0..80)) {
        let words = words(capacity);
        let (stacks, memo) = (stacks(&words), Memo::new());
        let mut naive: HashMap<Vec<StackNode>, u32> = HashMap::new();
        // Outermost first; the id of the whole path, `None` if the last node did not fit.
        let mut descend = |path: &mut Vec<StackNode>, node| {
            path.push(node);
            let next = naive.len() as u32 + layout::FIRST;
            let full = naive.len() == capacity;
            match naive.get(path) {
                Some(id) => Some(*id),
                None if full => None,
                None => Some(*naive.entry(path.clone()).or_insert(next)),
            }
        };
        let (mut ranges, mut cut): (Vec<(u32, StackNode)>, u64) = (Vec::new(), 0);
        for step in steps {
            let root = ranges.last().map_or(0, |(id, _)| *id);
            let mut path: Vec<_> = ranges.iter().map(|(_, node)| *node).collect();
            let mut expected = root;
            match step {
                Step::Close => drop(ranges.pop()),
                Step::Open(name) => {
                    let node = StackNode::Range { name, domain: 0 };
                    let id = stacks.child(root, node);
                    match descend(&mut path, node) {
                        Some(expected) => {
                            prop_assert_eq!(id, expected);
                            ranges.push((id, node));
                        }
                        None => {
                            prop_assert_eq!(id, root);
                            cut += 1;
                        }
                    }
                }
                Step::Push(addresses) => {
                    for address in addresses.iter().rev() {
                        let Some(id) = descend(&mut path, StackNode::Frame(*address)) else {
                            path.pop();
                            cut += 1;
                            break;
                        };
                        expected = id;
                    }
                    let id = stacks.push_id(&memo, root, &addresses);
                    prop_assert_eq!(id, expected);
                    path.reverse();
                    prop_assert_eq!(read(&words, id), path);
                }
            }
            prop_assert_eq!(count(&words, layout::CUT), cut);
        }
        prop_assert_eq!(count(&words, layout::HANDED_OUT), naive.len() as u64);
        prop_assert_eq!(broken(&words, layout::WORDS), 0);
    }

    #[test]
    fn any_words_are_survived(
        values in prop::collection::vec(
            prop_oneof![any::<u64>(), (0_u64..40).prop_map(|parent| layout::COMMITTED | 1 << 32 | parent)],
            0..100,
        ),
        each in 2_usize..5,
        id in prop_oneof![0_u32..60, any::<u32>()],
    ) {
        let words: Vec<_> = values.into_iter().map(AtomicU64::new).collect();
        prop_assert!(Stack::of(&words, each, id).count() <= words.len() / each);
        prop_assert!(broken(&words, each) <= words.len() as u64 / each as u64);
    }
}
