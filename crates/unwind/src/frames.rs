//! Room for the return addresses of one stack.

use std::fmt;
use std::mem::MaybeUninit;

/// The most frames that a walk gives.
pub const MAX_FRAMES: usize = 256;

/// The return addresses of one stack, innermost first. Two KiB that are not initialised before use.
pub struct Frames {
    addresses: [MaybeUninit<u64>; MAX_FRAMES],
    /// How many of `addresses`, from the first, are initialised.
    len: usize,
    cut: bool,
    whole: bool,
}

impl Frames {
    /// No frames.
    pub const fn new() -> Frames {
        Frames {
            addresses: [MaybeUninit::uninit(); MAX_FRAMES],
            len: 0,
            cut: false,
            whole: false,
        }
    }

    /// The return addresses, innermost first.
    pub fn as_slice(&self) -> &[u64] {
        // SAFETY: `push` initialised the first `len` words, and `len` is at most their number.
        unsafe { std::slice::from_raw_parts(self.addresses.as_ptr().cast(), self.len) }
    }

    /// As [`Frames::as_slice`], to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u64] {
        // SAFETY: as above, and they are borrowed as this is.
        unsafe { std::slice::from_raw_parts_mut(self.addresses.as_mut_ptr().cast(), self.len) }
    }

    /// Whether the stack had more than [`MAX_FRAMES`] frames: the outermost are missing.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Whether the last frame is the first function of the thread for sure: no frame is missing.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Forgets all frames.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.cut = false;
        self.whole = false;
    }

    /// Says of frames that were pushed once more what was known of them.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")),
        allow(dead_code)
    )]
    pub(super) fn restore(&mut self, is_cut: bool, is_whole: bool) {
        (self.cut, self.whole) = (is_cut, is_whole);
    }

    /// The last frame is the first function of the thread.
    pub(super) fn complete(&mut self) {
        self.whole = true;
    }

    /// Adds the next outer frame; false, and the stack counts as cut, when there is no room.
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
