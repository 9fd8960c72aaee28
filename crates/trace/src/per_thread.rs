//! What a thread keeps, made when it first needs it and given back when it ends.
//!
//! The shim is in every process of a machine, and thread-local storage is paid by each thread of each, also
//! where CUDA is never used. So a thread-local of more than a few words is a pointer, by [`OnDemand`].

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

/// A function that is called when a thread ends that asked for it.
///
/// By a key of pthreads and not by a destructor of a thread-local: those of keys run last, so that
/// what other libraries do in their thread-local destructors is still done in the usual way, and
/// they do not run for the thread that calls `exit`, where destructors of statics may do much.
#[derive(Debug)]
pub struct AtThreadEnd {
    key: OnceLock<Option<libc::pthread_key_t>>,
    run: extern "C" fn(*mut c_void),
}

impl AtThreadEnd {
    /// No key yet. The argument of `run` has no meaning.
    pub const fn new(run: extern "C" fn(*mut c_void)) -> Self {
        AtThreadEnd {
            key: OnceLock::new(),
            run,
        }
    }

    /// Has the function called, once, when the calling thread ends; `false` if that cannot be had. To ask
    /// again from a function that is called at a thread's end is allowed; there are four rounds of these.
    pub fn watch(&self) -> bool {
        let key = self.key.get_or_init(|| {
            let mut key = 0;
            // SAFETY: the pointer is to a local key, and the function stays: this code is never unloaded
            // while a thread that asked lives.
            let result = unsafe { libc::pthread_key_create(&mut key, Some(self.run)) };
            (result == 0).then_some(key)
        });
        // Any value but null has the function called.
        let value = ptr::without_provenance::<c_void>(1);
        // SAFETY: the key was created above, and is never deleted.
        key.is_some_and(|key| unsafe { libc::pthread_setspecific(key, value) } == 0)
    }
}

/// For a thread-local: a value that is made when it is first needed. It has no destructor, so that a
/// thread can use it until its very last instruction; [`AtThreadEnd`] has it freed.
#[derive(Debug)]
pub struct OnDemand<T> {
    /// Null while there is none.
    value: Cell<*mut T>,
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        OnDemand::new()
    }
}

impl<T> OnDemand<T> {
    /// No value yet. No type that needs to be dropped, nor one without a size.
    pub const fn new() -> Self {
        const { assert!(!std::mem::needs_drop::<T>() && size_of::<T>() > 0) };
        OnDemand {
            value: Cell::new(ptr::null_mut()),
        }
    }

    /// The value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or made below and not freed as long as it is borrowed.
        unsafe { self.value.get().as_ref() }
    }

    /// The value, made if there is none; `None` if there is no memory for it, or it would not be freed.
    #[inline]
    pub fn get_or_make(&self, end: &AtThreadEnd, make: impl FnOnce() -> T) -> Option<&T> {
        match self.get() {
            Some(value) => Some(value),
            None => self.make(end, make),
        }
    }

    /// As [`OnDemand::get_or_make`], of zeros, which take no memory until they are written.
    ///
    /// # Safety
    /// A value of zeros is a valid one.
    #[cold]
    pub unsafe fn make_zeroed(&self, end: &AtThreadEnd) -> Option<&T> {
        if self.get().is_none() {
            // SAFETY: the size is not zero.
            self.place(end, || unsafe {
                std::alloc::alloc_zeroed(Layout::new::<T>())
            })?;
        }
        self.get()
    }

    #[cold]
    fn make(&self, end: &AtThreadEnd, make: impl FnOnce() -> T) -> Option<&T> {
        // SAFETY: the size is not zero.
        let value = self.place(end, || unsafe { std::alloc::alloc(Layout::new::<T>()) })?;
        // SAFETY: memory of its size, which no reference refers to.
        unsafe { value.write(make()) };
        self.get()
    }

    /// Takes memory for the value.
    fn place(&self, end: &AtThreadEnd, allocate: impl FnOnce() -> *mut u8) -> Option<*mut T> {
        if !end.watch() {
            return None;
        }
        let value = allocate().cast::<T>();
        (!value.is_null()).then(|| {
            self.value.set(value);
            value
        })
    }

    /// Frees the value.
    ///
    /// # Safety
    /// No reference to the value exists: this is for the end of a thread.
    pub unsafe fn free(&self) {
        let value = self.value.replace(ptr::null_mut());
        if !value.is_null() {
            // SAFETY: made above with this layout, and by the caller's promise no longer used.
            unsafe { std::alloc::dealloc(value.cast(), Layout::new::<T>()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static FREED: AtomicUsize = AtomicUsize::new(0);
    static END: AtThreadEnd = AtThreadEnd::new(ended);

    thread_local! {
        static NUMBERS: OnDemand<[Cell<u64>; 500]> = const { OnDemand::new() };
    }

    extern "C" fn ended(_: *mut c_void) {
        NUMBERS.with(|numbers| {
            FREED.fetch_add(numbers.get().is_some().into(), Ordering::Relaxed);
            // SAFETY: nothing of this thread's is borrowed at its end.
            unsafe { numbers.free() };
            assert!(numbers.get().is_none());
        });
    }

    #[test]
    fn a_thread_has_its_own_until_it_ends() {
        let counted = |wanted: bool| {
            std::thread::spawn(move || {
                NUMBERS.with(|numbers| {
                    assert!(numbers.get().is_none());
                    if wanted {
                        for round in 0..3 {
                            let made = numbers.get_or_make(&END, || [const { Cell::new(7) }; 500]);
                            let [first, ..] = made.expect("memory");
                            assert_eq!(first.replace(7 + round + 1), 7 + round);
                        }
                    }
                });
            })
            .join()
            .expect("a thread that ends");
            FREED.load(Ordering::Relaxed)
        };
        assert_eq!([counted(true), counted(false), counted(true)], [1, 1, 2]);
    }
}
