//! Tells code apart that lay at the same addresses at different times.
//!
//! The addresses of an unloaded library may be used for the next one. Frames of both would look
//! alike. So frames of the later library are numbered, in bits that no address has.

use super::Module;

/// Lowest bit of the code's number in a frame. It is above any address of a program on x86-64 with
/// four levels of page tables, and on 64-bit Arm.
pub const SHIFT: u32 = 48;

/// Highest number; all later code has it, too. The highest bit of a frame is for other uses.
const LAST: u64 = (1 << (63 - SHIFT)) - 1;

/// Objects that stacks led through, at their present and earlier addresses.
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
    /// Each object with its number. Objects at the same addresses have different numbers.
    met: Vec<(Module, u64)>,
    /// Addresses of objects that lie there now and are not the first there, with their numbers.
    now: Vec<(std::ops::Range<u64>, u64)>,
}

impl Again {
    /// Starts without any objects.
    pub const fn new() -> Again {
        Again {
            met: Vec::new(),
            now: Vec::new(),
        }
    }

    /// Notes an object that was found. Returns its number, and true if it was found for the first
    /// time.
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

    /// True if [`Again::number`] would change no frame.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    /// Puts the number of its code into each frame.
    pub fn number(&self, frames: &mut [u64]) {
        for frame in frames {
            // A return address is after its call, which may be the last instruction of its object.
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
        // The first one is met again, then one that reaches beyond its end.
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
            // Only the last few are kept: a search in all for each would take long.
            again.met.drain(..again.met.len().saturating_sub(4));
            assert_eq!(again.meet(&met), (number.min(0x7fff), true));
        }
    }
}
