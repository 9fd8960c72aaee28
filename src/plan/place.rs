//! Places for blocks whose lifetimes are known: the largest first, each at the lowest place that nothing has
//! which lives at the same time.

use super::lives::Span;

/// The blocks of one place: a block, or a block and its successor in the next period.
#[derive(Clone, Debug)]
pub struct Group {
    bytes: u64,
    life: Life,
    then: Option<Life>,
}

/// From which request to which.
type Life = (usize, usize);

impl Group {
    pub fn one(span: Span) -> Group {
        Group {
            bytes: span.bytes,
            life: (span.from, span.to),
            then: None,
        }
    }

    /// And a block of the same size that comes after it.
    pub fn and(&mut self, span: Span) {
        self.then = Some((span.from, span.to));
    }

    fn meets(&self, other: &Group) -> bool {
        let meet = |a: Life, b: Life| a.0 < b.1 && b.0 < a.1;
        let of = |group: &Group, life: Life| {
            meet(group.life, life) || group.then.is_some_and(|then| meet(then, life))
        };
        of(self, other.life) || other.then.is_some_and(|then| of(self, then))
    }
}

/// The offset of each group, bytes from the beginning.
pub fn place(groups: &[Group]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&at| {
        groups
            .get(at)
            .map(|group| (std::cmp::Reverse(group.bytes), group.life.0))
    });
    let mut offsets = vec![0; groups.len()];
    // In the order of their places: begin, end, group.
    let mut placed: Vec<(u64, u64, &Group)> = Vec::with_capacity(groups.len());
    for index in order {
        let Some(group) = groups.get(index) else {
            continue;
        };
        let offset = lowest(&placed, group);
        let end = offset.saturating_add(group.bytes);
        let at = placed.partition_point(|(begin, ..)| *begin < offset);
        placed.insert(at, (offset, end, group));
        if let Some(place) = offsets.get_mut(index) {
            *place = offset;
        }
    }
    offsets
}

/// The lowest place.
fn lowest(placed: &[(u64, u64, &Group)], group: &Group) -> u64 {
    let mut at = 0;
    for (begin, end, other) in placed {
        if *end <= at || !other.meets(group) {
            continue;
        }
        if begin.saturating_sub(at) >= group.bytes && *begin >= at {
            break;
        }
        at = *end;
    }
    at
}
