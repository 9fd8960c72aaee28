//! Every interleaving and every order in which memory may become visible, for a tiny tree.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::explore::{Crowded, Outcomes, crowd, explore, zeros};

/// A tree on memory that lives as long as the model runs.
struct Tree {
    words: &'static [Crowded],
    stacks: Stacks<'static, Crowded>,
}

impl Tree {
    fn new(nodes: usize) -> Arc<Tree> {
        let count = (layout::FIRST as usize + nodes) * layout::WORDS;
        let word = crowd();
        let words: &'static [Crowded] = Box::leak(zeros(&word, count));
        let stacks = Stacks::new(words, Index::over(zeros(&word, 4)));
        Arc::new(Tree { words, stacks })
    }

    fn frame(&self, parent: u32, address: u64) -> u32 {
        self.stacks.child(parent, StackNode::Frame(address))
    }

    fn read(&self, id: u32) -> Vec<StackNode> {
        Stack::of(self.words, layout::WORDS, id).collect()
    }

    fn count(&self, at: usize) -> u64 {
        Word::load(&self.words[at], Ordering::Relaxed)
    }
}

#[test]
fn two_threads_that_add_the_same_node_agree() {
    let outcomes = Outcomes::default();
    let written = outcomes.clone();
    explore(3, move || {
        let tree = Tree::new(2);
        let other = Arc::clone(&tree);
        let other = thread::spawn(move || other.frame(0, 7));
        let id = tree.frame(0, 7);
        assert_eq!(other.join().unwrap(), id);
        assert_eq!(tree.read(id), [StackNode::Frame(7)]);
        assert_eq!(tree.count(layout::CUT), 0);
        written.add(tree.count(layout::HANDED_OUT) as usize);
    });
    // Both orders, and the race in which an unused copy of a node is written.
    assert_eq!(outcomes.all(), [1, 2]);
}

#[test]
fn two_threads_that_add_different_nodes_get_both() {
    explore(3, || {
        let tree = Tree::new(2);
        let other = Arc::clone(&tree);
        let other = thread::spawn(move || other.frame(0, 8));
        let id = tree.frame(0, 7);
        let other = other.join().unwrap();
        assert_eq!(tree.read(id), [StackNode::Frame(7)]);
        assert_eq!(tree.read(other), [StackNode::Frame(8)]);
        assert_eq!([tree.frame(0, 7), tree.frame(0, 8)], [id, other]);
    });
}

#[test]
fn of_two_threads_that_want_the_last_node_one_is_cut() {
    explore(3, || {
        let tree = Tree::new(1);
        let other = Arc::clone(&tree);
        let other = thread::spawn(move || other.frame(0, 8));
        let id = tree.frame(0, 7);
        let mut ids = [id, other.join().unwrap()];
        ids.sort_unstable();
        assert_eq!(ids, [0, layout::FIRST]);
        assert_eq!(tree.count(layout::CUT), 1);
    });
}

#[test]
fn a_child_found_through_the_index_hangs_below_its_parent() {
    explore(2, || {
        let tree = Tree::new(4);
        let other = Arc::clone(&tree);
        let other = thread::spawn(move || other.frame(other.frame(0, 1), 2));
        let id = tree.frame(tree.frame(0, 1), 2);
        assert_eq!(other.join().unwrap(), id);
        // The reader insists on parents that are less than their children.
        assert_eq!(tree.read(id), [StackNode::Frame(2), StackNode::Frame(1)]);
        assert_eq!(broken(tree.words, layout::WORDS), 0);
    });
}

#[test]
fn a_reader_sees_a_node_whole_or_not_at_all() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    explore(3, move || {
        let tree = Tree::new(2);
        let (reader, seen) = (Arc::clone(&tree), seen.clone());
        let whole = [StackNode::Frame(2), StackNode::Frame(1)];
        let reader = thread::spawn(move || {
            let found = reader.read(layout::FIRST + 1);
            assert!(found.is_empty() || found == whole, "{found:?}");
            assert_eq!(broken(reader.words, layout::WORDS), 0);
            seen.add(found.len());
        });
        let id = tree.frame(tree.frame(0, 1), 2);
        reader.join().unwrap();
        assert_eq!(tree.read(id), whole);
    });
    assert_eq!(outcomes.all(), [0, 2]);
}
