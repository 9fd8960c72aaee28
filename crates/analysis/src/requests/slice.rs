//! A part of a run, as a run of its own.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{Op, Request, Requests};

impl Requests {
    /// Returns the first request at this time or later, ns since the start of the recording.
    pub fn at(&self, ns: u64) -> usize {
        self.iter()
            .position(|request| request.ns >= ns)
            .unwrap_or(self.len())
    }

    /// Returns the time of the last request, ns since the start of the recording.
    pub fn end(&self) -> u64 {
        self.iter().map(|request| request.ns).max().unwrap_or(0)
    }

    /// Returns the time at which live memory first reaches nine tenths of its peak, ns since the
    /// start of the recording.
    pub fn full(&self) -> u64 {
        let enough = self.peak() / 10 * 9;
        let mut live = 0_u64;
        let mut requests = self.iter();
        let full = requests.find(|request| {
            match request.op {
                Op::Allocate => live = live.saturating_add(request.bytes),
                Op::Free => live = live.saturating_sub(request.bytes),
                Op::Done | Op::Trim => {}
            }
            live >= enough
        });
        full.map_or(0, |request| request.ns)
    }

    /// Returns requests `from..to`, after an allocation of each block that was live before the
    /// first of them, in the order of the allocations. Blocks are numbered anew.
    pub fn slice(&self, from: usize, to: usize) -> Requests {
        let mut slice = Requests::default();
        let mut numbers = FxHashMap::default();
        let mut live: BTreeMap<u32, Request> = BTreeMap::new();
        for (index, request) in self.iter().enumerate().take(to) {
            if index < from {
                match request.op {
                    Op::Allocate => {
                        live.insert(request.block, request);
                    }
                    Op::Free => {
                        live.remove(&request.block);
                    }
                    Op::Done | Op::Trim => {}
                }
                continue;
            }
            for earlier in std::mem::take(&mut live).into_values() {
                let ns = request.ns;
                push(&mut slice, &mut numbers, Request { ns, ..earlier });
            }
            push(&mut slice, &mut numbers, request);
        }
        slice
    }
}

fn push(slice: &mut Requests, numbers: &mut FxHashMap<u32, u32>, request: Request) {
    let block = match request.op {
        Op::Allocate => {
            let next = slice.blocks();
            numbers.insert(request.block, next);
            next
        }
        // Its allocation is in the slice: blocks that are live at its beginning were added there.
        Op::Free => numbers.remove(&request.block).unwrap_or(request.block),
        Op::Trim => 0,
        // It has no effect on the shim's pools, which slices are for.
        Op::Done => return,
    };
    // The limits of the whole run hold for a part of it.
    slice.push(Request { block, ..request });
}

#[cfg(test)]
mod tests {
    use super::super::made::{Shape, generate};
    use super::*;

    fn live(requests: &Requests, to: usize) -> u64 {
        requests
            .iter()
            .take(to)
            .fold(0, |live, request| match request.op {
                Op::Allocate => live + request.bytes,
                Op::Free => live - request.bytes,
                Op::Done | Op::Trim => live,
            })
    }

    #[test]
    fn a_slice_begins_with_what_was_live() {
        let whole = generate(&Shape {
            layers: 6,
            steps: 5,
            streams: 2,
            ..Shape::default()
        });
        for (from, to) in [
            (0, whole.len()),
            (0, 10),
            (37, 120),
            (200, whole.len()),
            (50, 50),
        ] {
            let slice = whole.slice(from, to);
            if from == to {
                assert!(slice.is_empty());
                continue;
            }
            let extra = slice.len() - (to - from);
            assert_eq!(live(&slice, extra), live(&whole, from), "{from}..{to}");
            let asked = |request: Request| (request.op, request.bytes, request.stream);
            let (part, of) = (slice.iter().skip(extra), whole.iter().take(to).skip(from));
            assert!(part.map(asked).eq(of.map(asked)), "{from}..{to}");
            assert_eq!(live(&slice, slice.len()), live(&whole, to), "{from}..{to}");
            // Numbers without gaps: each allocation has the next one.
            let numbers = slice.iter().filter(|request| request.op == Op::Allocate);
            assert!(
                numbers
                    .enumerate()
                    .all(|(at, request)| request.block as usize == at)
            );
        }
        let whole_again = whole.slice(0, whole.len());
        assert!(whole_again.iter().eq(whole.iter()));
    }

    #[test]
    fn requests_by_time() {
        let whole = generate(&Shape::default());
        let third = whole.iter().nth(2).unwrap().ns;
        assert_eq!(
            (whole.at(0), whole.at(third), whole.at(third + 1)),
            (0, 2, 3)
        );
        assert_eq!(whole.at(u64::MAX), whole.len());
        assert_eq!(whole.end(), whole.iter().last().unwrap().ns);
        let full = whole.at(whole.full());
        assert!(live(&whole, full + 1) >= whole.peak() / 10 * 9);
        assert!((0..=full).all(|to| live(&whole, to) < whole.peak() / 10 * 9));
        let nothing = Requests::default();
        assert_eq!((nothing.end(), nothing.full()), (0, 0));
    }
}
