//! Code that came to lie where other code had been: which of them a return address is in.
//!
//! A library that is unloaded leaves its addresses to the next. Frames of both would look alike, so those
//! of the later one are numbered, in bits that no address has.

use super::Module;

/// Where in a frame the number of its code stands, in bits: above any address of a program on x86-64 with
/// four levels of page tables, and on 64-bit Arm.
pub const SHIFT: u32 = 48;

/// The highest number; the code after that keeps it. The highest bit of a frame is for others.
const LAST: u64 = (1 << (63 - SHIFT)) - 1;

/// The objects that stacks led through, as they lie now and lay before.
///
/// ```
/// use gpushim_unwind::{Again, Module};
///
/// let library = |path: &str| Module { begin: 0x1000, end: 0x2000, path: path.into(), ..Module::default() };
/// let mut again = Again::new();
/// assert_eq!(again.meet(&library("first.so")), (0, true));
/// // Loaded at the addresses of the first one, which was unloaded.
/// assert_eq!(again.meet(&library("second.so")), (1, true));
///
/// let mut frames = [0x1234, 0x5678];
/// again.number(&mut frames);
/// assert_eq!(frames, [0x1234 | 1 << 48, 0x5678]);
/// ```
#[derive(Debug, Default)]
pub struct Again {
    /// Each with its number; of those at the same addresses the numbers differ.
    met: Vec<(Module, u64)>,
    /// The addresses of those that lie there now and are not the first there, with their numbers.
    now: Vec<(std::ops::Range<u64>, u64)>,
}

impl Again {
    /// Nothing was met yet.
    pub const fn new() -> Again {
        Again {
            met: Vec::new(),
            now: Vec::new(),
        }
    }

    /// An object was found: its number, and whether this is the first time.
    pub fn meet(&mut self, module: &Module) -> (u64, bool) {
        let overlaps = |begin: u64, end: u64| begin < module.end && module.begin < end;
        let known = self.met.iter().find(|(met, _)| met == module);
        let (number, is_new) = match known {
            Some((_, number)) => (*number, false),
            None => {
                let before = self
                    .met
                    .iter()
                    .filter(|(met, _)| overlaps(met.begin, met.end));
                let last = before.map(|(_, number)| *number).max();
                (last.map_or(0, |last| LAST.min(last + 1)), true)
            }
        };
        if is_new {
            self.met.push((module.clone(), number));
        }
        self.now
            .retain(|(range, _)| !overlaps(range.start, range.end));
        if number > 0 {
            self.now.push((module.begin..module.end, number));
        }
        (number, is_new)
    }

    /// Whether no frame would be changed by [`Again::number`].
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    /// Puts the numbers of their code into frames.
    pub fn number(&self, frames: &mut [u64]) {
        for frame in frames {
            // A return address is after its call, which may be the last thing of its object.
            let call = frame.wrapping_sub(1);
            let here = self.now.iter().find(|(range, _)| range.contains(&call));
            *frame |= here.map_or(0, |(_, number)| number << SHIFT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(begin: u64, path: &str) -> Module {
        Module {
            begin,
            end: begin + 0x1000,
            path: path.into(),
            ..Module::default()
        }
    }

    #[test]
    fn who_comes_later_is_told_from_who_was_there() {
        let mut again = Again::new();
        let frames = |again: &Again| {
            let mut frames = [0x1000, 0x1001, 0x2000, 0x2001];
            again.number(&mut frames);
            frames
        };
        let plain = [0x1000, 0x1001, 0x2000, 0x2001];
        let second = [0x1000, 0x1001 | 1 << 48, 0x2000 | 1 << 48, 0x2001];
        assert_eq!(again.meet(&module(0x1000, "a")), (0, true));
        assert_eq!(again.meet(&module(0x1000, "a")), (0, false));
        assert_eq!(again.meet(&module(0x2000, "beside")), (0, true));
        assert!(again.is_empty());
        assert_eq!(frames(&again), plain);
        assert_eq!(again.meet(&module(0x1000, "b")), (1, true));
        assert_eq!(frames(&again), second);
        // The first one again, then one that reaches beyond.
        assert_eq!(again.meet(&module(0x1000, "a")), (0, false));
        assert!(again.is_empty());
        assert_eq!(frames(&again), plain);
        assert_eq!(again.meet(&module(0x1800, "c")), (2, true));
        assert_eq!(again.meet(&module(0x1000, "b")), (1, false));
        assert_eq!(frames(&again), second);
    }

    #[test]
    fn numbers_end() {
        let mut again = Again::new();
        for number in 0..70_000_u64 {
            let met = Module {
                bias: number,
                ..module(0x1000, "a")
            };
            // Only the last few: to look for each in all would take long.
            again.met.drain(..again.met.len().saturating_sub(4));
            assert_eq!(again.meet(&met), (number.min(0x7fff), true));
        }
    }
}
