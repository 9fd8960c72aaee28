//! The objects that walks have come through. Each is announced once.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::object::{self, Object};
use super::seen::Seen;
use crate::{BuildId, Module};

/// Function that is called with each new module; null as long as none is registered.
static LISTENER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

static ANNOUNCED: Seen<4096> = Seen::new();

/// Finds the loaded object that an address lies in; `None` if there is none. Allocates for the
/// path.
pub fn module_of(pc: u64) -> Option<Module> {
    Some(describe(&object::find(pc)?))
}

/// Registers `f`, which is called with each object that a walk comes through for the first time. It
/// is called on the thread that walks, before the walk ends. Register once, at the start.
///
/// After [`code_changed`](super::code_changed) the objects still loaded count as new again. Two
/// threads that come through an object at the same time announce it once, or in rare cases twice.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use gpushim_unwind::{Frames, Module, on_new_module, walk};
///
/// static MODULES: AtomicUsize = AtomicUsize::new(0);
///
/// fn announce(_: &Module) {
///     MODULES.fetch_add(1, Ordering::Relaxed);
/// }
///
/// on_new_module(announce);
/// walk(&mut Frames::new());
/// assert!(MODULES.load(Ordering::Relaxed) > 0);
/// ```
pub fn on_new_module(f: fn(&Module)) {
    LISTENER.store(f as *mut (), Ordering::Release);
    // The first search looks up a function under a lock of the dynamic linker: better now than in a
    // walk.
    object::find(0);
    super::code_changed();
}

/// Forgets which objects were announced.
pub fn forget() {
    ANNOUNCED.forget();
}

/// Announces an object unless that was done.
pub fn seen(object: &Object) {
    let listener = LISTENER.load(Ordering::Acquire);
    if !listener.is_null() && ANNOUNCED.is_new(object.begin) {
        // SAFETY: only `on_new_module` stores here, a function of this type.
        let f = unsafe { std::mem::transmute::<*mut (), fn(&Module)>(listener) };
        f(&describe(object));
    }
}

fn describe(object: &Object) -> Module {
    let name = object.name().to_bytes();
    let path = if name.is_empty() {
        std::fs::read_link("/proc/self/exe").unwrap_or_default()
    } else {
        PathBuf::from(OsStr::from_bytes(name))
    };
    Module {
        begin: object.begin,
        end: object.end,
        bias: object.bias,
        path,
        build_id: build_id(object).unwrap_or_default(),
    }
}

/// Finds the descriptor of the note of type 3 by `GNU`: see `<elf.h>`, `NT_GNU_BUILD_ID`.
fn build_id(object: &Object) -> Option<BuildId> {
    let notes = object
        .segments()
        .iter()
        .filter(|s| s.p_type == libc::PT_NOTE);
    notes
        .filter_map(|segment| {
            let bytes = object.bytes(object.address_of(segment))?;
            bytes.get(..segment.p_filesz as usize)
        })
        .find_map(|mut notes| {
            loop {
                let (note, rest) = Note::first(notes)?;
                if note.name == b"GNU\0" && note.kind == 3 {
                    return Some(BuildId::from(note.descriptor));
                }
                notes = rest;
            }
        })
}

struct Note<'a> {
    name: &'a [u8],
    kind: u32,
    descriptor: &'a [u8],
}

impl<'a> Note<'a> {
    /// Splits off the first note. Names and descriptors are padded to four bytes. Only property
    /// notes have more padding, and they are in a segment of their own.
    fn first(bytes: &'a [u8]) -> Option<(Note<'a>, &'a [u8])> {
        let (sizes, rest) = bytes.split_first_chunk::<12>()?;
        let word = |at: usize| {
            let bytes = sizes.get(at..at + 4)?;
            bytes.try_into().ok().map(u32::from_ne_bytes)
        };
        let (name_size, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name = rest.get(..name_size)?;
        let rest = rest.get(name_size.next_multiple_of(4)..)?;
        let descriptor = rest.get(..size)?;
        let rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        let note = Note {
            name,
            kind,
            descriptor,
        };
        Some((note, rest))
    }
}
