//! Types at the boundary to C: arguments in and out, and callback functions.

use crate::codes::{INVALID_VALUE, Outcome};

pub use crate::structs::*;

/// Address to which a C caller wants a result written; may be null.
///
/// Only C code makes one. The driver API obliges it to pass null or a valid address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Returns a null address, for a result that the caller does not want.
    pub fn nowhere() -> Self {
        Out(std::ptr::null_mut())
    }

    /// Stores a result. Returns an error if the address is null.
    pub fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        self.maybe(value);
        Ok(())
    }

    /// Stores a result, unless the address is null.
    pub fn maybe(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller of the C function passed null or an address it may be written to.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Returns the same address as an address of another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// True if the caller does not want the result.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns an error if the address is null. Callers check this before they have any effect.
    pub fn required(self) -> Outcome {
        if self.0.is_null() {
            Err(INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// Stores element `index` of an array that the caller provides, unless the address is null.
    pub fn put_at(self, index: usize, value: T) {
        Out(self.0.wrapping_add(index)).maybe(value);
    }
}

impl<T: Copy> Out<T> {
    /// Returns the value at the address now, for arguments that go in and out.
    pub fn get(self) -> Outcome<T> {
        In(self.0.cast_const()).get()
    }
}

impl<T> From<&mut T> for Out<T> {
    fn from(to: &mut T) -> Self {
        Out(to)
    }
}

/// Address of an argument in a C caller; may be null. Only C code makes one, as with [`Out`].
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct In<T>(*const T);

impl<T> In<T> {
    /// Returns the same address as an address of another type.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T: Copy> In<T> {
    /// Returns the argument. A null address is an error.
    pub fn get(self) -> Outcome<T> {
        self.at(0)
    }

    /// Returns element `index` of an array. A null address is an error.
    pub fn at(self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller of the C function passed null or the address of enough such values.
        Ok(unsafe { self.0.wrapping_add(index).read_unaligned() })
    }

    /// Returns the first `count` elements of an array.
    pub fn list(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

impl<T> From<&T> for In<T> {
    fn from(from: &T) -> Self {
        In(from)
    }
}

/// A C string argument; may be null. Only C code makes one, as with [`Out`].
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const libc::c_char);

impl Text {
    /// Returns the text. A null address is an error.
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

/// Argument of a callback (`CUstreamCallback`, `CUhostFn`), passed to it unchanged.
pub type UserData = *mut libc::c_void;

/// Callback of `cuLaunchHostFunc` and of host nodes (`CUhostFn`).
pub type HostFn = Option<unsafe extern "C" fn(UserData)>;

/// Callback of `cuStreamAddCallback` (`CUstreamCallback`).
pub type StreamCallback = Option<unsafe extern "C" fn(u64, u32, UserData)>;

/// Handle `CU_STREAM_LEGACY`.
pub const STREAM_LEGACY: u64 = 1;
/// Handle `CU_STREAM_PER_THREAD`.
pub const STREAM_PER_THREAD: u64 = 2;
/// Flag `CU_STREAM_NON_BLOCKING`.
pub const STREAM_NON_BLOCKING: u32 = 1;
