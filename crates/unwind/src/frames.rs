//! Room for the return addresses of one stack.

use std::fmt;
use std::mem::MaybeUninit;

/// Most frames that a walk returns.
pub const MAX_FRAMES: usize = 256;

/// Return addresses of one stack, innermost first. They take two KiB that are not initialised
/// before use.
pub struct Frames {
    addresses: [MaybeUninit<u64>; MAX_FRAMES],
    /// Number of initialised `addresses`, from the first.
    len: usize,
    cut: bool,
    whole: bool,
}

impl Frames {
    /// Makes room without frames.
    pub const fn new() -> Frames {
        let addresses = MaybeUninit::<[MaybeUninit<u64>; MAX_FRAMES]>::uninit();
        Frames {
            // Written as `[MaybeUninit::uninit(); MAX_FRAMES]`, it would be filled with zeros.
            // SAFETY: an array of words that may be uninitialised is always initialised.
            addresses: unsafe { addresses.assume_init() },
            len: 0,
            cut: false,
            whole: false,
        }
    }

    /// Return addresses, innermost first.
    pub fn as_slice(&self) -> &[u64] {
        // SAFETY: `push` initialised the first `len` words, and `len` is at most their number.
        unsafe { std::slice::from_raw_parts(self.addresses.as_ptr().cast(), self.len) }
    }

    /// Return addresses, innermost first, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u64] {
        // SAFETY: as in `as_slice`, and they are borrowed as this is.
        unsafe { std::slice::from_raw_parts_mut(self.addresses.as_mut_ptr().cast(), self.len) }
    }

    /// True if the stack had more than [`MAX_FRAMES`] frames: the outermost are missing.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// True if the last frame is known to be the first function of the thread: no frame is missing.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Removes all frames and both marks.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.cut = false;
        self.whole = false;
    }

    /// Restores the marks of frames that were pushed once more.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")),
        allow(dead_code)
    )]
    pub(super) fn restore(&mut self, is_cut: bool, is_whole: bool) {
        (self.cut, self.whole) = (is_cut, is_whole);
    }

    /// Marks the last frame as the first function of the thread.
    pub(super) fn complete(&mut self) {
        self.whole = true;
    }

    /// Adds the next outer frame. If there is no room, returns false and marks the stack as cut.
    #[inline]
    pub(super) fn push(&mut self, address: u64) -> bool {
        match self.addresses.get_mut(self.len) {
            Some(place) => {
                place.write(address);
                self.len += 1;
                true
            }
            None => {
                self.cut = true;
                false
            }
        }
    }
}

impl Default for Frames {
    fn default() -> Frames {
        Frames::new()
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.cut { "cut " } else { "" };
        write!(f, "{cut}{:#x?}", self.as_slice())
    }
}
