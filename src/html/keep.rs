//! The best of a stream, in bounded memory.

/// Keeps the `most` items with the highest scores.
///
/// The other items are handed back to the caller, which sums them up.
pub struct Keep<T> {
    held: Vec<(u64, T)>,
    most: usize,
    /// After items were handed back: items with a lower score than this are handed back at once.
    least: u64,
}

impl<T> Keep<T> {
    pub fn new(most: usize) -> Keep<T> {
        Keep {
            held: Vec::new(),
            most: most.max(1),
            least: 0,
        }
    }

    /// Takes an item in, or lets it or others go.
    pub fn give(&mut self, score: u64, item: T, mut gone: impl FnMut(T)) {
        if score < self.least {
            gone(item);
            return;
        }
        self.held.push((score, item));
        // Twice as many are held for a while, so that sorting out is rare.
        if self.held.len() >= self.most.saturating_mul(2) {
            self.sort_out(gone);
        }
    }

    /// Returns the kept items, in no order.
    pub fn finish(mut self, gone: impl FnMut(T)) -> Vec<T> {
        if self.held.len() > self.most {
            self.sort_out(gone);
        }
        self.held.into_iter().map(|(_, item)| item).collect()
    }

    fn sort_out(&mut self, gone: impl FnMut(T)) {
        let last = self.most - 1;
        self.held
            .select_nth_unstable_by_key(last, |(score, _)| std::cmp::Reverse(*score));
        self.least = self.held.get(last).map_or(0, |(score, _)| *score);
        self.held
            .drain(self.most..)
            .map(|(_, item)| item)
            .for_each(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_stay_and_nothing_is_lost() {
        let mut keep = Keep::new(10);
        let mut gone = Vec::new();
        for number in (0..1000u64).map(|n| n * 7919 % 1000) {
            keep.give(number, number, |item| gone.push(item));
        }
        let mut held = keep.finish(|item| gone.push(item));
        held.sort_unstable();
        assert_eq!(held, (990..1000).collect::<Vec<_>>());
        gone.extend(held);
        gone.sort_unstable();
        assert_eq!(gone, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn few_all_stay() {
        let mut keep = Keep::new(10);
        (0..10).for_each(|n| keep.give(0, n, |_| panic!("let go")));
        assert_eq!(keep.finish(|_| panic!("let go")).len(), 10);
    }
}
