//! Paths through a tree: what several paths begin with is stored once.
//!
//! The stacks of a program are such paths, from its first function inwards. Consecutive stacks
//! mostly differ in their innermost frames only: a comparison with one of them reads the rest from
//! the same memory as the comparison before.

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Paths of `ITEMS` different items together. A value of zeros is an empty one.
///
/// Items that are added one after the other lie one after the other. So a path consists of a few
/// runs of items.
pub struct Paths<T, const ITEMS: usize> {
    /// Number of items; they are numbered from 1 on.
    count: Cell<u32>,
    values: [Cell<T>; ITEMS],
    links: [Link; ITEMS],
    /// Numbers of items, each at or after the place that its hash gives; 0 for none.
    by_hash: [[Cell<u32>; 2]; ITEMS],
}

struct Link {
    /// Number of the items directly before it that precede it in its path.
    run: Cell<u32>,
    /// Number of the item before these; 0 for none.
    before: Cell<u32>,
    /// Number that the user of the tree gave to the path that ends here; 0 for none.
    label: Cell<u32>,
}

/// End of a path: its last item. A value of zeros is the empty path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathEnd(u32);

impl<T: Copy + Eq + Hash, const ITEMS: usize> Paths<T, ITEMS> {
    /// True if `holds` returns true for each item of a path. They are asked from the last one to
    /// the first, until one does not hold.
    #[inline]
    pub fn all(&self, end: PathEnd, mut holds: impl FnMut(&T) -> bool) -> bool {
        let mut item = end.0 as usize;
        while let Some(last) = item.checked_sub(1) {
            let Some(link) = self.links.get(last) else {
                return false;
            };
            let run = last.wrapping_sub(link.run.get() as usize)..item;
            let Some(run) = self.values.get(run) else {
                return false;
            };
            if !run.iter().rev().all(|value| holds(&value.get())) {
                return false;
            }
            item = link.before.get() as usize;
        }
        true
    }

    /// Returns the ends of a path and of all paths that it begins with, the longest first, each
    /// with its last item.
    pub fn items(&self, end: PathEnd) -> impl Iterator<Item = (PathEnd, T)> {
        let mut next = end.0;
        std::iter::from_fn(move || {
            let at = (next as usize).checked_sub(1)?;
            let (value, link) = (self.values.get(at)?.get(), self.links.get(at)?);
            let end = PathEnd(next);
            next = match link.run.get() {
                0 => link.before.get(),
                _ => next - 1,
            };
            Some((end, value))
        })
    }

    /// Returns the end of a path with one more item; `None` if there is no room.
    pub fn longer(&self, end: PathEnd, value: T) -> Option<PathEnd> {
        let mut hash = Mix(u64::from(end.0));
        value.hash(&mut hash);
        let places = self.by_hash.as_flattened();
        let first = (hash.0 >> 32) as usize % places.len();
        let taken = places.iter().cycle().skip(first).take(places.len());
        for place in taken {
            let at = place.get() as usize;
            let Some(at) = at.checked_sub(1) else {
                // There are twice as many places as items.
                let added = self.add(end, value)?;
                place.set(added.0);
                return Some(added);
            };
            if self.values.get(at)?.get() == value && self.before(at)? == end {
                return Some(PathEnd(place.get()));
            }
        }
        None
    }

    fn add(&self, end: PathEnd, value: T) -> Option<PathEnd> {
        let at = self.count.get() as usize;
        let (place, link) = (self.values.get(at)?, self.links.get(at)?);
        let (run, before) = match at.checked_sub(1).and_then(|last| self.links.get(last)) {
            Some(last) if end.0 == at as u32 => (last.run.get() + 1, last.before.get()),
            _ => (0, end.0),
        };
        place.set(value);
        link.run.set(run);
        link.before.set(before);
        link.label.set(0);
        self.count.set(at as u32 + 1);
        Some(PathEnd(at as u32 + 1))
    }

    /// Returns the end of the path before the item at an index.
    fn before(&self, at: usize) -> Option<PathEnd> {
        let link = self.links.get(at)?;
        Some(PathEnd(match link.run.get() {
            0 => link.before.get(),
            _ => at as u32,
        }))
    }

    /// Returns the label of a path that is not empty.
    pub fn label(&self, end: PathEnd) -> Option<&Cell<u32>> {
        let at = (end.0 as usize).checked_sub(1)?;
        self.links.get(at).map(|link| &link.label)
    }

    /// Forgets all paths and labels.
    pub fn forget(&self) {
        self.count.set(0);
        let places = self.by_hash.as_flattened();
        places.iter().for_each(|place| place.set(0));
    }

    /// Prefetches the last items of a path, about as many as consecutive stacks differ in.
    #[inline]
    pub fn fetch(&self, end: PathEnd) {
        let Some(last) = (end.0 as usize).checked_sub(1) else {
            return;
        };
        self.links.get(last).into_iter().for_each(fetch);
        let own = self
            .values
            .get(last.saturating_sub(FETCHED)..end.0 as usize);
        let in_line = const {
            if size_of::<T>() < 64 {
                64 / size_of::<T>()
            } else {
                1
            }
        };
        let own = own.unwrap_or_default().iter();
        own.step_by(in_line).for_each(fetch);
    }
}

/// Number of items that are prefetched.
const FETCHED: usize = 24;

/// Prefetches a cache line.
#[inline]
fn fetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it changes nothing, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// Hash of words: each bit depends on all lower bits of the words before.
struct Mix(u64);

/// Bits of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(26) ^ value).wrapping_mul(FACTOR);
    }
}

impl<T, const ITEMS: usize> fmt::Debug for Paths<T, ITEMS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} items of paths", self.count.get())
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed};
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    type Small = Paths<u64, 64>;

    fn empty() -> Box<Small> {
        // SAFETY: a value of zeros is one, and the layout is the box's.
        unsafe { Box::from_raw(alloc_zeroed(Layout::new::<Small>()).cast()) }
    }

    fn path(paths: &Small, items: &[u64]) -> Option<PathEnd> {
        let mut items = items.iter();
        items.try_fold(PathEnd::default(), |end, item| paths.longer(end, *item))
    }

    proptest! {
        /// Every path has an end of its own, by which its items and its label are found.
        #[test]
        fn each_path_is_found_by_its_end(
            all in prop::collection::vec(prop::collection::vec(0_u64..3, 1..8), 1..40),
        ) {
            let paths = empty();
            let mut ends = HashMap::new();
            for (number, items) in (1..).zip(&all) {
                let Some(end) = path(&paths, items) else {
                    paths.forget();
                    ends.clear();
                    continue;
                };
                let before = ends.insert(items.clone(), (end, number));
                let label = paths.label(end).expect("a label");
                prop_assert_eq!(label.replace(number), before.map_or(0, |(_, label)| label));
                prop_assert!(before.is_none_or(|(before, _)| before == end));
            }
            for (items, (end, number)) in &ends {
                let mut found: Vec<u64> = paths.items(*end).map(|(_, item)| item).collect();
                found.reverse();
                prop_assert_eq!(&found, items);
                let mut asked = Vec::new();
                let holds = paths.all(*end, |item| { asked.push(*item); true });
                prop_assert!(holds);
                asked.reverse();
                prop_assert_eq!(&asked, items);
                // The first item alone does not hold.
                let mut asked = 0;
                let holds = paths.all(*end, |_| { asked += 1; asked < items.len() });
                prop_assert!(!holds);
                prop_assert_eq!(paths.label(*end).map(Cell::get), Some(*number));
                for ((shorter, _), length) in paths.items(*end).zip((0..=items.len()).rev()) {
                    prop_assert_eq!(path(&paths, &items[..length]), Some(shorter));
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let paths = empty();
        let one = path(&paths, &[1]).expect("room");
        assert!((0..63).all(|other| paths.longer(one, other).is_some()));
        assert_eq!(paths.longer(one, 100), None);
        assert!(paths.longer(one, 62).is_some());
        assert!(paths.all(PathEnd::default(), |_| false));
        assert!(paths.label(PathEnd::default()).is_none());
        paths.forget();
        let other = path(&paths, &[200]).expect("room");
        assert_eq!(paths.label(other).map(Cell::get), Some(0));
    }
}
