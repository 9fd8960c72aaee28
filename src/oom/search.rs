//! The smallest set of conditions without which a request would have succeeded.

/// Possible reasons for a failed request, the most particular first. Of sets of one size, the first
/// one is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// Blocks that iterations left behind.
    Leak,
    /// Freed blocks that wait for streams or captures.
    Waiting,
    /// Pools of graphs or of the program.
    Pools,
    /// Streams that have caches of their own.
    Streams,
    /// The cache of a framework, for a request by another library.
    FrameworkCache,
    /// Free memory that lies in pieces.
    Pieces,
    /// A limit that the framework keeps.
    FrameworkLimit,
    /// Memory of other processes that share the limit.
    Peers,
    /// The limit that `GPUSHIM_LIMIT` sets.
    Limit,
    /// Memory of other processes.
    Others,
}

impl Candidate {
    /// All of them, in the order of preference.
    const ALL: [Candidate; 10] = [
        Candidate::Leak,
        Candidate::Waiting,
        Candidate::Pools,
        Candidate::Streams,
        Candidate::FrameworkCache,
        Candidate::Pieces,
        Candidate::FrameworkLimit,
        Candidate::Peers,
        Candidate::Limit,
        Candidate::Others,
    ];

    /// Returns true if free memory in one piece would have the same effect: then it need not be
    /// named, too.
    fn is_of_pieces(self) -> bool {
        matches!(self, Candidate::Pools | Candidate::Streams)
    }
}

/// A set of conditions that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Without(u16);

impl Without {
    /// The set in which nothing is left out.
    pub const NONE: Without = Without(0);

    /// Returns the set with one more.
    pub fn and(self, one: Candidate) -> Without {
        Without(self.0 | 1 << one as u16)
    }

    /// Returns true if one is among them.
    pub fn has(self, one: Candidate) -> bool {
        self.0 & 1 << one as u16 != 0
    }

    /// Lists them in the order of preference.
    pub fn all(self) -> impl Iterator<Item = Candidate> {
        let all = Candidate::ALL.into_iter();
        all.filter(move |one| self.has(*one))
    }
}

/// A situation in which conditions can be left out.
pub(super) trait World {
    /// Returns true if leaving this out changes anything.
    fn has(&self, one: Candidate) -> bool;

    /// Returns true if the request succeeds without these.
    fn fits(&self, without: Without) -> bool;
}

/// The set that a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Smallest {
    /// The set: without all of these together the request succeeds, without fewer it fails. Empty
    /// if no set was found.
    pub set: Vec<Candidate>,
    /// Others that would have been enough alone, if the set is a single one.
    pub instead: Vec<Candidate>,
}

/// Looks for the smallest set, of at most `most` conditions.
pub(super) fn smallest(world: &dyn World, most: usize) -> Smallest {
    let there: Vec<Candidate> = Candidate::ALL
        .into_iter()
        .filter(|one| world.has(*one))
        .collect();
    let mut sets = vec![Without::NONE];
    for _ in 0..most {
        // Each set extended by one, in the order of preference.
        let larger = sets.iter().flat_map(|set| {
            let last = set.all().last();
            let after = there
                .iter()
                .skip_while(move |one| last.is_some_and(|last| **one as u16 <= last as u16));
            after.map(|one| set.and(*one))
        });
        sets = larger.collect();
        let mut enough = sets.iter().filter(|set| world.fits(**set));
        let Some(first) = enough.next() else {
            continue;
        };
        let set: Vec<Candidate> = first.all().collect();
        let [one] = set[..] else {
            return Smallest {
                set,
                instead: Vec::new(),
            };
        };
        let is_told = |other: &Candidate| one.is_of_pieces() && *other == Candidate::Pieces;
        let instead = enough.flat_map(|set| set.all());
        return Smallest {
            instead: instead.filter(|other| !is_told(other)).collect(),
            set,
        };
    }
    Smallest::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Candidate::{FrameworkLimit, Leak, Limit, Others, Pieces, Streams};

    /// The bytes that a request lacks, and the bytes from leaving out each condition.
    struct Lacks(u64, Vec<(Candidate, u64)>);

    impl World for Lacks {
        fn has(&self, one: Candidate) -> bool {
            self.1.iter().any(|(of, _)| *of == one)
        }

        fn fits(&self, without: Without) -> bool {
            let brought = self.1.iter().filter(|(of, _)| without.has(*of));
            brought.map(|(_, bytes)| bytes).sum::<u64>() >= self.0
        }
    }

    fn found(lacks: u64, of: &[(Candidate, u64)]) -> (Vec<Candidate>, Vec<Candidate>) {
        let found = smallest(&Lacks(lacks, of.to_vec()), 3);
        (found.set, found.instead)
    }

    #[test]
    fn one_that_is_enough_is_before_two() {
        let all = [(Leak, 69), (Pieces, 700), (Others, 640)];
        assert_eq!(found(700, &all), (vec![Pieces], vec![]));
        assert_eq!(found(60, &all), (vec![Leak], vec![Pieces, Others]));
        assert_eq!(found(705, &all), (vec![Leak, Pieces], vec![]));
        assert_eq!(
            found(709, &[(Leak, 69), (Limit, 640)]),
            (vec![Leak, Limit], vec![])
        );
    }

    #[test]
    fn nothing_is_enough() {
        assert_eq!(found(5, &[(Leak, 4)]), (vec![], vec![]));
        assert_eq!(found(5, &[]), (vec![], vec![]));
    }

    /// A limit is set on purpose: wasted memory below it is the better answer.
    #[test]
    fn limits_come_after_what_wastes_memory() {
        let all = [(FrameworkLimit, 9), (Limit, 9), (Pieces, 9)];
        assert_eq!(found(5, &all), (vec![Pieces], vec![FrameworkLimit, Limit]));
        assert_eq!(found(5, &all[..2]), (vec![FrameworkLimit], vec![Limit]));
    }

    #[test]
    fn streams_say_more_than_pieces() {
        let all = [(Streams, 9), (Pieces, 9), (Limit, 9)];
        assert_eq!(found(5, &all), (vec![Streams], vec![Limit]));
    }
}
