//! The walker for all other targets, by the `backtrace` crate. It is slow, and may allocate.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use super::objects::each_object;
use super::{BuildId, Frames, Module};

/// Function that is called for each object that a frame lies in.
static LISTENER: OnceLock<fn(&Module)> = OnceLock::new();

/// Most objects that are remembered as announced. Beyond it the list starts anew.
const ANNOUNCED_MOST: usize = 4096;

/// Addresses of objects that were announced since code last changed.
static ANNOUNCED: Mutex<Vec<std::ops::Range<u64>>> = Mutex::new(Vec::new());

/// Fills `frames` with the return addresses of the calling thread, from the caller of this function
/// on. Returns their number.
#[inline(never)]
pub fn walk(frames: &mut Frames) -> usize {
    frames.clear();
    // The frames of the walking functions lie below this variable, the caller's above. If an
    // unwinder reports no stack pointers, they are 0, and its own frames stay in.
    let here = 0u8;
    let here = std::ptr::from_ref(std::hint::black_box(&here)) as usize;
    let visit = |frame: &backtrace::Frame| {
        let own = frame.sp() as usize;
        // Some unwinders find address 0 below the first function of a thread.
        let skip = (own != 0 && own <= here) || frame.ip().is_null();
        skip || frames.push(frame.ip() as u64)
    };
    // SAFETY: only the naming of frames needs to be serialised with other users of the crate, and
    // none are named here.
    unsafe { backtrace::trace_unsynchronized(visit) };
    if let Some(listener) = LISTENER.get() {
        frames
            .as_slice()
            .iter()
            .for_each(|pc| announce(*pc, *listener));
    }
    frames.as_slice().len()
}

/// Known walks: none, with this walker.
#[derive(Debug, Default)]
pub struct KnownWalks(());

impl KnownWalks {
    /// Most walks that are known.
    pub const MOST: usize = 0;

    /// Fills `frames` with the frames of a known walk.
    pub fn copy(&self, _met: Met, _frames: &mut Frames) {}
}

/// Result of a search for a known walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met(());

impl Met {
    /// Number of the walk, and true if it was met for the first time.
    pub fn walk(self) -> Option<(usize, bool)> {
        None
    }
}

/// Walks like [`walk`], and knows no walks.
#[inline(never)]
pub fn walk_known(frames: &mut Frames, _known: &KnownWalks) -> Met {
    walk(frames);
    Met(())
}

/// Announces the object that an address lies in, unless that was done.
fn announce(pc: u64, listener: fn(&Module)) {
    let Ok(mut announced) = ANNOUNCED.lock() else {
        return;
    };
    if announced.iter().any(|object| object.contains(&pc)) {
        return;
    }
    let module = module_of(pc);
    if announced.len() >= ANNOUNCED_MOST {
        announced.clear();
    }
    announced.push(match &module {
        Some(module) => module.begin..module.end,
        // Generated code: this page is not looked up again.
        None => pc & !0xfff..(pc | 0xfff).saturating_add(1),
    });
    drop(announced);
    if let Some(module) = module {
        listener(&module);
    }
}

/// Notes that objects were loaded or unloaded: all addresses are looked up anew.
pub fn code_changed() {
    if let Ok(mut announced) = ANNOUNCED.lock() {
        announced.clear();
    }
}

/// Finds the loaded object that an address lies in.
pub fn module_of(pc: u64) -> Option<Module> {
    let mut found = None;
    each_object(|info| {
        found = described(info, pc);
        found.is_some()
    });
    found
}

/// Registers a function that is called for each object, the first time that a frame lies in it
/// since code last changed.
pub fn on_new_module(f: fn(&Module)) {
    // Only the first registration counts; a second one is of the same function.
    let _ = LISTENER.set(f);
}

/// Describes a loaded object, if the address lies in it.
fn described(info: &libc::dl_phdr_info, pc: u64) -> Option<Module> {
    if info.dlpi_phdr.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker says how many headers there are, and keeps them while it shows the object.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let address = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr);
    let of_kind = |kind| headers.iter().filter(move |header| header.p_type == kind);
    let begin = of_kind(libc::PT_LOAD).map(address).min()?;
    let end = of_kind(libc::PT_LOAD)
        .map(|header| address(header).saturating_add(header.p_memsz))
        .max()?;
    if !(begin..end).contains(&pc) {
        return None;
    }
    let notes = of_kind(libc::PT_NOTE).map(|header| {
        // SAFETY: a segment of notes lies within what is loaded of the object.
        unsafe { std::slice::from_raw_parts(address(header) as *const u8, header.p_memsz as usize) }
    });
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: the dynamic linker's string, while it shows the object.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let path = if name.is_empty() {
        std::fs::read_link("/proc/self/exe").unwrap_or_default()
    } else {
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    };
    Some(Module {
        begin,
        end,
        bias: info.dlpi_addr,
        path,
        build_id: notes.filter_map(build_id).next().unwrap_or_default(),
    })
}

/// Finds the descriptor of the note of type 3 by `GNU`: see `<elf.h>`, `NT_GNU_BUILD_ID`. Names and
/// descriptors are padded to four bytes. Only property notes have more padding, and they are in a
/// segment of their own.
fn build_id(notes: &[u8]) -> Option<BuildId> {
    let mut rest = notes;
    loop {
        let word = |at: usize| {
            let bytes = rest.get(at..at + 4)?;
            bytes.try_into().ok().map(u32::from_ne_bytes)
        };
        let (name_size, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name = rest.get(12..)?.get(..name_size)?;
        let descriptor = rest.get(12..)?.get(name_size.next_multiple_of(4)..)?;
        if kind == 3 && name == b"GNU\0" {
            return Some(BuildId::from(descriptor.get(..size)?));
        }
        rest = descriptor.get(size.next_multiple_of(4)..)?;
    }
}

/// Returns empty parts: this walker does not know the ends of functions.
pub fn parts_of(_entry: u64) -> [std::ops::Range<u64>; 4] {
    [const { 0..0 }; 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_function_is_this_program() {
        let here = the_object_of_a_function_is_this_program as *const () as u64;
        let module = module_of(here).unwrap();
        assert!((module.begin..module.end).contains(&here));
        assert_eq!(module.path, std::env::current_exe().unwrap());
        assert_eq!(module_of(8), None);
    }

    #[test]
    fn objects_are_announced_once_until_code_changes() {
        static TOLD: Mutex<Vec<Module>> = Mutex::new(Vec::new());
        let told = || TOLD.lock().unwrap().len();
        let listener = |module: &Module| TOLD.lock().unwrap().push(module.clone());
        let here = build_id as *const () as u64;
        for count in 1..=2 {
            code_changed();
            announce(here, listener);
            announce(here, listener);
            assert_eq!(told(), count);
        }
        let module = TOLD.lock().unwrap()[0].clone();
        assert_eq!(Some(module), module_of(here));
        // Generated code lies in no object.
        announce(8, listener);
        assert_eq!(told(), 2);
    }
}
