//! Whether blocks fit below a limit, by search through placements from the bottom up.
//!
//! Only placements are looked at in which each block lies at the bottom or on another one: any placement becomes such
//! a one when its blocks fall. Blocks are placed in the order of their offsets, so what is placed next lies on top of all
//! placed neighbours: its floor. Of the blocks with the lowest floor one section is chosen, that with the fewest; either
//! one of its blocks lies at this floor, or each of them rests on a neighbour that is not placed yet. A branch ends where
//! the blocks that are left in some section, each from its floor on, reach beyond the limit. Blocks that do not meet
//! any more are searched for themselves.
//!
//! Canonical placements, dominance and sections are MiniMalloc's (Moffitt, ASPLOS 2023); that one section is
//! decided at a time, and the bound by floors (that of one machine with release dates), are not.

use super::Block;
use super::neighbours::Neighbours;

/// What came of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// They fit, at these offsets.
    Fit(Vec<u64>),
    /// They do not fit.
    Never,
    /// Not known: there were too few steps.
    Unknown,
}

/// How a branch ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Placed,
    Impossible,
    OutOfSteps,
}

pub struct Search<'a> {
    blocks: &'a [Block],
    near: &'a Neighbours,
    limit: u64,
    most: u64,
    steps: u64,
    /// The place of each block in the order in which they are tried.
    rank: Vec<u32>,
    floor: Vec<u64>,
    offset: Vec<u64>,
    placed: Vec<bool>,
    /// Floors as they were, to be put back.
    before: Vec<(u32, u64)>,
    /// In each section: where what is left would end.
    ends: Vec<u64>,
    /// In each section: how many blocks have the lowest floor.
    lowest: Vec<u32>,
}

impl<'a> Search<'a> {
    /// For blocks with lives in sections; those that come first in the order are tried first.
    pub fn new(
        blocks: &'a [Block],
        near: &'a Neighbours,
        sections: usize,
        order: &[u32],
        limit: u64,
    ) -> Search<'a> {
        let mut rank = vec![0; blocks.len()];
        for (place, at) in order.iter().enumerate() {
            rank[*at as usize] = place as u32;
        }
        Search {
            blocks,
            near,
            limit,
            most: 0,
            steps: 0,
            rank,
            floor: vec![0; blocks.len()],
            offset: vec![0; blocks.len()],
            placed: vec![false; blocks.len()],
            before: Vec::new(),
            ends: vec![0; sections],
            lowest: vec![0; sections],
        }
    }

    /// Searches for at most `most` steps. Also how many it took.
    pub fn run(mut self, most: u64) -> (Found, u64) {
        self.most = most;
        let all: Vec<u32> = (0..self.blocks.len() as u32).collect();
        for part in self.apart(&all) {
            match self.place(part) {
                End::Placed => {}
                End::Impossible => return (Found::Never, self.steps),
                End::OutOfSteps => return (Found::Unknown, self.steps),
            }
        }
        (Found::Fit(self.offset), self.steps)
    }

    /// Blocks in groups that do not meet, the smallest group first.
    fn apart(&mut self, list: &[u32]) -> Vec<Vec<u32>> {
        let span = |at: u32| {
            let [first, second] = self.blocks[at as usize].lives;
            (first.from, first.to.max(second.to), at)
        };
        let mut spans: Vec<_> = list.iter().map(|at| span(*at)).collect();
        spans.sort_unstable();
        self.steps += 2 * list.len() as u64;
        let (mut groups, mut end): (Vec<Vec<u32>>, usize) = (Vec::new(), 0);
        for (from, to, at) in spans {
            match groups.last_mut().filter(|_| from < end) {
                Some(group) => group.push(at),
                None => groups.push(vec![at]),
            }
            end = end.max(to);
        }
        groups.sort_by_key(Vec::len);
        groups
    }

    /// Places these blocks, or leaves everything as it was.
    fn place(&mut self, mut list: Vec<u32>) -> End {
        let begin = self.before.len();
        let end = loop {
            if self.steps >= self.most {
                break End::OutOfSteps;
            }
            list.sort_unstable_by_key(|at| self.floor[*at as usize]);
            let Some(section) = self.choose(&list) else {
                break End::Impossible;
            };
            let floor = self.floor[list[0] as usize];
            let is_full = self.ends[section] == self.limit;
            let candidates = self.candidates(&list, section, floor);
            let mut end = End::Impossible;
            for at in &candidates {
                end = self.with(*at, floor, &list);
                if end != End::Impossible {
                    break;
                }
            }
            if end != End::Impossible {
                break end;
            }
            if is_full || !self.raise(&candidates) {
                break End::Impossible;
            }
        };
        if end != End::Placed {
            self.restore(begin);
        }
        end
    }

    /// The section in which there is least to choose among the blocks with the lowest floor. `None`: what is left
    /// in some section does not fit. The list is in the order of floors.
    fn choose(&mut self, list: &[u32]) -> Option<usize> {
        let lives = || list.iter().flat_map(|at| self.blocks[*at as usize].lives());
        let first = lives().map(|life| life.from).min()?;
        let last = lives().map(|life| life.to).max()?;
        self.ends[first..last].fill(0);
        self.lowest[first..last].fill(0);
        let least = self.floor[list[0] as usize];
        self.steps += 2 * list.len() as u64;
        for at in list {
            let (block, floor) = (&self.blocks[*at as usize], self.floor[*at as usize]);
            for life in block.lives() {
                self.steps += (life.to - life.from) as u64;
                for section in life.from..life.to {
                    let end = self.ends[section].max(floor) + block.bytes;
                    if end > self.limit {
                        return None;
                    }
                    self.ends[section] = end;
                    self.lowest[section] += u32::from(floor == least);
                }
            }
        }
        let choices = (first..last).filter(|section| self.lowest[*section] > 0);
        choices.min_by_key(|section| {
            let room = self.limit - self.ends[*section];
            (self.lowest[*section] + u32::from(room > 0), room)
        })
    }

    /// The blocks of a section with this floor, the lowest one, in the order in which they are tried.
    fn candidates(&self, list: &[u32], section: usize, floor: u64) -> Vec<u32> {
        let lowest = list
            .iter()
            .take_while(|at| self.floor[**at as usize] == floor);
        let is_there = |at: &&u32| {
            let mut lives = self.blocks[**at as usize].lives();
            lives.any(|life| life.from <= section && section < life.to)
        };
        let mut candidates: Vec<u32> = lowest.filter(is_there).copied().collect();
        candidates.sort_unstable_by_key(|at| self.rank[*at as usize]);
        candidates
    }

    /// Places one block of a list at its floor, and then the others.
    fn with(&mut self, chosen: u32, floor: u64, list: &[u32]) -> End {
        let at = chosen as usize;
        let top = floor + self.blocks[at].bytes;
        let begin = self.before.len();
        self.placed[at] = true;
        self.offset[at] = floor;
        let (near, blocks) = (self.near, self.blocks);
        near.each(blocks, at, |other| {
            self.steps += 1;
            if !self.placed[other] && self.floor[other] < top {
                self.before.push((other as u32, self.floor[other]));
                self.floor[other] = top;
            }
        });
        let others: Vec<u32> = list.iter().copied().filter(|at| *at != chosen).collect();
        let mut end = End::Placed;
        for group in self.apart(&others) {
            end = self.place(group);
            if end != End::Placed {
                break;
            }
        }
        if end != End::Placed {
            for other in list {
                self.placed[*other as usize] = false;
            }
            self.restore(begin);
        }
        end
    }

    /// None of these lies at its floor: each rests on a neighbour that is to come. False: one has none.
    fn raise(&mut self, candidates: &[u32]) -> bool {
        let (near, blocks) = (self.near, self.blocks);
        let mut raised = Vec::with_capacity(candidates.len());
        for at in candidates {
            let mut least = u64::MAX;
            near.each(blocks, *at as usize, |other| {
                self.steps += 1;
                if !self.placed[other] {
                    least = least.min(self.floor[other] + blocks[other].bytes);
                }
            });
            if least > self.limit {
                return false;
            }
            raised.push((*at, least));
        }
        for (at, floor) in raised {
            self.before.push((at, self.floor[at as usize]));
            self.floor[at as usize] = floor;
        }
        true
    }

    fn restore(&mut self, begin: usize) {
        while self.before.len() > begin
            && let Some((at, floor)) = self.before.pop()
        {
            self.floor[at as usize] = floor;
        }
    }
}
