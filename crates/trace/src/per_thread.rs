//! State of a thread, made when it is first needed and freed when the thread ends.
//!
//! The shim is in every process of a machine, and each thread pays for thread-local storage, even
//! if it never uses CUDA. So a thread-local of more than a few words is a pointer, by [`OnDemand`].

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

/// Function that is called at the end of each thread that asked for it.
///
/// It uses a key of pthreads and not a destructor of a thread-local, for two reasons:
///
/// - functions of keys run last, so that calls in other libraries' thread-local destructors are
///   still served in the usual way;
/// - they do not run for the thread that calls `exit`, where destructors of statics may do much.
#[derive(Debug)]
pub struct AtThreadEnd {
    key: OnceLock<Option<libc::pthread_key_t>>,
    run: extern "C" fn(*mut c_void),
}

impl AtThreadEnd {
    /// Returns a value without a key. The argument of `run` has no meaning.
    pub const fn new(run: extern "C" fn(*mut c_void)) -> Self {
        AtThreadEnd {
            key: OnceLock::new(),
            run,
        }
    }

    /// Requests a call of the function, once, when the calling thread ends; `false` if that is
    /// impossible. A function called at a thread's end may request it again; there are four rounds
    /// of these.
    pub fn watch(&self) -> bool {
        let key = self.key.get_or_init(|| {
            let mut key = 0;
            // SAFETY: the pointer is to a local key, and the function stays: this code is never
            // unloaded while a thread that asked lives.
            let result = unsafe { libc::pthread_key_create(&mut key, Some(self.run)) };
            (result == 0).then_some(key)
        });
        // Any value but null makes pthreads call the function.
        let value = ptr::without_provenance::<c_void>(1);
        // SAFETY: the key was created above, and is never deleted.
        key.is_some_and(|key| unsafe { libc::pthread_setspecific(key, value) } == 0)
    }
}

/// Value for a thread-local, made when it is first needed. It has no destructor, so that a thread
/// can use it until its last instruction. A function of [`AtThreadEnd`] must free it.
#[derive(Debug)]
pub struct OnDemand<T> {
    /// Null while there is no value.
    value: Cell<*mut T>,
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        OnDemand::new()
    }
}

impl<T> OnDemand<T> {
    /// Returns an empty one. The type must have a size, and must not need to be dropped.
    pub const fn new() -> Self {
        const { assert!(!std::mem::needs_drop::<T>() && size_of::<T>() > 0) };
        OnDemand {
            value: Cell::new(ptr::null_mut()),
        }
    }

    /// Returns the value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or made below and not freed as long as it is borrowed.
        unsafe { self.value.get().as_ref() }
    }

    /// Returns the value, made if there is none. `None` if there is no memory for it, or it would
    /// not be freed.
    #[inline]
    pub fn get_or_make(&self, end: &AtThreadEnd, make: impl FnOnce() -> T) -> Option<&T> {
        match self.get() {
            Some(value) => Some(value),
            None => self.make(end, make),
        }
    }

    /// Returns the value like [`OnDemand::get_or_make`], made of zeros. These take no memory until
    /// they are written.
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

    /// Allocates memory for the value.
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
