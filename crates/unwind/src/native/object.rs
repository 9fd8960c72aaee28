//! The loaded object that an address lies in, and its segments.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{Elf64_Ehdr, Elf64_Phdr, PF_R, PF_X, PT_LOAD};

use crate::objects::each_object;

/// A loaded object. Its pointers are valid as long as the object is loaded. A frame in the object
/// guarantees that to a caller.
pub struct Object {
    /// Address of the first byte.
    pub begin: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Difference between an address in the process and the same address in the file.
    pub bias: u64,
    name: *const c_char,
    segments: *const [Elf64_Phdr],
}

impl Object {
    /// Returns its program headers.
    pub fn segments(&self) -> &[Elf64_Phdr] {
        // SAFETY: program headers as the dynamic linker mapped them; see the type for how long.
        unsafe { &*self.segments }
    }

    /// Name by which the dynamic linker knows it: empty for the executable.
    pub fn name(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the dynamic linker's string for the object; see the type for how long.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// True if code lies at an address.
    pub fn is_code(&self, address: u64) -> bool {
        self.loaded(address)
            .is_some_and(|segment| segment.p_flags & PF_X != 0)
    }

    /// Returns the loaded bytes from an address to the end of its segment. `None` if the address is
    /// in no segment of the object, or cannot be read.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        let segment = self.loaded(address)?;
        let left = segment.p_memsz - self.offset_in(segment, address);
        // SAFETY: inside a readable segment of a loaded object. The parts that are read, unwind
        // tables and notes, are never written.
        (segment.p_flags & PF_R != 0)
            .then(|| unsafe { std::slice::from_raw_parts(address as *const u8, left as usize) })
    }

    /// Finds the first segment of a type.
    pub fn segment(&self, kind: u32) -> Option<&Elf64_Phdr> {
        self.segments().iter().find(|s| s.p_type == kind)
    }

    /// Address of a segment in the process.
    pub fn address_of(&self, segment: &Elf64_Phdr) -> u64 {
        self.bias.wrapping_add(segment.p_vaddr)
    }

    fn loaded(&self, address: u64) -> Option<&Elf64_Phdr> {
        self.segments()
            .iter()
            .find(|s| s.p_type == PT_LOAD && self.offset_in(s, address) < s.p_memsz)
    }

    fn offset_in(&self, segment: &Elf64_Phdr, address: u64) -> u64 {
        address.wrapping_sub(self.address_of(segment))
    }
}

/// Finds the object that an address lies in.
pub fn find(address: u64) -> Option<Object> {
    let Some(find) = dl_find_object() else {
        return by_iteration(address);
    };
    let mut found = MaybeUninit::<DlFindObject>::uninit();
    // SAFETY: the function only compares the address, and initialises the struct if it gives 0.
    let found = unsafe {
        if find(address as *mut c_void, found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    of(&found).or_else(|| by_iteration(address))
}

/// `struct dl_find_object` of glibc's `<dlfcn.h>` on x86-64.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *const c_void,
    map_end: *const c_void,
    link_map: *const LinkMap,
    eh_frame: *const c_void,
    reserved: [u64; 7],
}

/// Beginning of `struct link_map` of `<link.h>`.
#[repr(C)]
struct LinkMap {
    l_addr: u64,
    l_name: *const c_char,
}

type Find = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

/// glibc's `_dl_find_object`, since 2.35: takes no lock.
fn dl_find_object() -> Option<Find> {
    /// Null before the first look-up; its own address if there is no such function.
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let none = FOUND.as_ptr().cast::<c_void>();
    let mut found = FOUND.load(Ordering::Acquire);
    if found.is_null() {
        // By version: the shim does not interpose that look-up.
        // SAFETY: both are C strings.
        found = unsafe {
            libc::dlvsym(
                libc::RTLD_DEFAULT,
                c"_dl_find_object".as_ptr(),
                c"GLIBC_2.35".as_ptr(),
            )
        };
        if found.is_null() {
            found = none;
        }
        FOUND.store(found, Ordering::Release);
    }
    // SAFETY: it is glibc's function, which has this signature.
    (found != none).then(|| unsafe { std::mem::transmute::<*mut c_void, Find>(found) })
}

/// Describes the object by its ELF header, if it starts with one.
fn of(found: &DlFindObject) -> Option<Object> {
    let header = found.map_start.cast::<Elf64_Ehdr>();
    // SAFETY: the first page of a loaded object is mapped, and the link map is glibc's own.
    let (header, map) = unsafe { (header.as_ref()?, found.link_map.as_ref()?) };
    let (at, count) = (header.e_phoff, header.e_phnum);
    let fits = header.e_ident.starts_with(b"\x7fELF")
        && usize::from(header.e_phentsize) == size_of::<Elf64_Phdr>()
        && at % 8 == 0
        && at < 4096
        && at + u64::from(count) * size_of::<Elf64_Phdr>() as u64 <= 4096;
    let first = (found.map_start as u64 + at) as *const Elf64_Phdr;
    fits.then(|| Object {
        begin: found.map_start as u64,
        end: found.map_end as u64,
        bias: map.l_addr,
        name: map.l_name,
        segments: std::ptr::slice_from_raw_parts(first, count.into()),
    })
}

/// Finds the object by `dl_iterate_phdr`, under the dynamic linker's lock.
pub fn by_iteration(address: u64) -> Option<Object> {
    let mut found = None;
    each_object(|info| {
        let mut object = Object {
            begin: 0,
            end: 0,
            bias: info.dlpi_addr,
            name: info.dlpi_name,
            segments: std::ptr::slice_from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
        };
        if object.loaded(address).is_none() {
            return false;
        }
        let loaded = || object.segments().iter().filter(|s| s.p_type == PT_LOAD);
        let begin = loaded().map(|s| object.address_of(s) & !4095).min();
        let end = loaded().map(|s| object.address_of(s) + s.p_memsz).max();
        (object.begin, object.end) = (begin.unwrap_or(0), end.unwrap_or(0));
        found = Some(object);
        true
    });
    found
}
