//! What crosses the boundary to C: arguments in and out, and functions to call back.

use crate::codes::{INVALID_VALUE, Outcome};

pub use crate::structs::*;

/// Where a C caller wants a result; may be null.
///
/// Only C code makes one, and the driver API obliges it to pass null or a valid address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A result that the caller does not want.
    pub fn nowhere() -> Self {
        Out(std::ptr::null_mut())
    }

    /// Stores a result that the caller must want.
    pub fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        self.maybe(value);
        Ok(())
    }

    /// Stores a result if the caller wants it.
    pub fn maybe(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller of the C function passed null or an address it may be written to.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// The same place for another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Whether the caller does not want the result.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// An error if there is nowhere to put a result: to be asked before anything is done.
    pub fn required(self) -> Outcome {
        if self.0.is_null() {
            Err(INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// Stores element `index` of an array that the caller provides.
    pub fn put_at(self, index: usize, value: T) {
        Out(self.0.wrapping_add(index)).maybe(value);
    }
}

impl<T: Copy> Out<T> {
    /// What the place holds now, for arguments that go in and out.
    pub fn get(self) -> Outcome<T> {
        In(self.0.cast_const()).get()
    }
}

impl<T> From<&mut T> for Out<T> {
    fn from(to: &mut T) -> Self {
        Out(to)
    }
}

/// Where a C caller keeps an argument; may be null. See [`Out`] for who makes one.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct In<T>(*const T);

impl<T> In<T> {
    /// The same place for another type.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T: Copy> In<T> {
    /// The argument, which the caller must give.
    pub fn get(self) -> Outcome<T> {
        self.at(0)
    }

    /// Element `index` of an array.
    pub fn at(self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller of the C function passed null or the address of enough such values.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// The first `count` elements of an array.
    pub fn list(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

impl<T> From<&T> for In<T> {
    fn from(from: &T) -> Self {
        In(from)
    }
}

/// A C string argument; may be null. See [`Out`] for who makes one.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const libc::c_char);

impl Text {
    /// The text, which the caller must give.
    pub fn get(self) -> Outcome<String> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller of the C function passed null or a nul-terminated string.
        let text = unsafe { std::ffi::CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl From<&'static std::ffi::CStr> for Text {
    fn from(text: &'static std::ffi::CStr) -> Self {
        Text(text.as_ptr())
    }
}

/// `CUstreamCallback` and `CUhostFn` take such a pointer back.
pub type UserData = *mut libc::c_void;

/// `CUhostFn`.
pub type HostFn = Option<unsafe extern "C" fn(UserData)>;

/// `CUstreamCallback`.
pub type StreamCallback = Option<unsafe extern "C" fn(u64, u32, UserData)>;

/// `CU_STREAM_LEGACY`.
pub const STREAM_LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
pub const STREAM_PER_THREAD: u64 = 2;
/// `CU_STREAM_NON_BLOCKING`.
pub const STREAM_NON_BLOCKING: u32 = 1;
