//! The function that a caller would have reached without this library.
//!
//! A process may hold several runtimes. Some of them may be loaded RTLD_LOCAL, where `RTLD_NEXT`
//! does not look. The right one is the one that the calling library depends on.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::base::linker;
use crate::record::trace;

/// Call sites that are remembered for one symbol. Once three quarters are filled, further ones are
/// looked up at each call.
const SITES: usize = 256;

/// An interposed symbol and, by return address, the functions behind it that were found so far.
///
/// Entries are only ever added. That is sound because the look-up keeps the calling library in the
/// process for good, and with it the libraries on which it depends.
pub struct Interposed {
    name: &'static CStr,
    sites: [Site; SITES],
    adding: Mutex<Known>,
}

/// Number of filled entries, and libraries that were found.
struct Known {
    sites: usize,
    /// Libraries that are recorded in the trace.
    libraries: Vec<String>,
}

struct Site {
    /// Return address, written last; 0 while the entry is free.
    caller: AtomicUsize,
    address: AtomicPtr<c_void>,
    lazy_context: AtomicBool,
}

/// The function behind one caller's symbol.
#[derive(Clone, Copy)]
pub struct Real {
    /// Its address; never null.
    pub address: *const c_void,
    /// True for a CUDA runtime before version 12, which makes contexts current lazily.
    pub lazy_context: bool,
}

impl Interposed {
    /// Makes a symbol for which no function is known yet.
    pub const fn new(name: &'static CStr) -> Self {
        Interposed {
            name,
            sites: [const {
                Site {
                    caller: AtomicUsize::new(0),
                    address: AtomicPtr::new(ptr::null_mut()),
                    lazy_context: AtomicBool::new(false),
                }
            }; SITES],
            adding: Mutex::new(Known {
                sites: 0,
                libraries: Vec::new(),
            }),
        }
    }

    /// Returns the function that the caller at this return address means; `None` if there is none.
    #[inline]
    pub fn real(&self, caller: *const c_void) -> Option<Real> {
        for site in self.sites_of(caller) {
            match site.caller.load(Ordering::Acquire) {
                0 => break,
                known if known == caller as usize => {
                    return Some(Real {
                        address: site.address.load(Ordering::Relaxed),
                        lazy_context: site.lazy_context.load(Ordering::Relaxed),
                    });
                }
                _ => {}
            }
        }
        self.find(caller)
    }

    /// Returns the entries in which a caller may be, the likeliest first.
    #[inline]
    fn sites_of(&self, caller: *const c_void) -> impl Iterator<Item = &Site> {
        let mixed = (caller as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (before, from) = self.sites.split_at(mixed as usize % SITES);
        from.iter().chain(before)
    }

    #[cold]
    fn find(&self, caller: *const c_void) -> Option<Real> {
        let ours = linker::library_at(linker::find_next as *const c_void);
        let of_caller = linker::handle_of(caller)
            .map(|library| linker::symbol(library, self.name))
            // The main program's handle is the global scope, where this library's function is the
            // first.
            .filter(|&found| !found.is_null() && linker::library_at(found) != ours);
        let address = of_caller.unwrap_or_else(|| linker::next_symbol(self.name));
        if address.is_null() {
            return None;
        }
        let path = linker::library_at(address).unwrap_or_default();
        self.tell(&path);
        let real = Real {
            address,
            lazy_context: path.contains("libcudart.so.11") || path.contains("libcudart.so.10"),
        };
        self.add(caller, real);
        Some(real)
    }

    /// Notes in the trace, once, the library of the function behind the symbol.
    fn tell(&self, path: &str) {
        let Ok(mut known) = self.adding.lock() else {
            return;
        };
        if !known.libraries.iter().any(|library| library == path) {
            known.libraries.push(path.to_owned());
            trace::fact(&self.name.to_string_lossy(), path);
        }
    }

    fn add(&self, caller: *const c_void, real: Real) {
        let Ok(mut known) = self.adding.lock() else {
            return;
        };
        if known.sites >= SITES / 4 * 3 {
            return;
        }
        let mut sites = self.sites_of(caller);
        if let Some(free) = sites.find(|site| site.caller.load(Ordering::Relaxed) == 0) {
            known.sites += 1;
            free.address
                .store(real.address.cast_mut(), Ordering::Relaxed);
            free.lazy_context
                .store(real.lazy_context, Ordering::Relaxed);
            free.caller.store(caller as usize, Ordering::Release);
        }
    }
}
