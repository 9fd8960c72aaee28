//! The address space of the process, which `ulimit -v` may limit.

/// Whether the address space has room for a mapping of this size, in bytes.
pub fn are_free(bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, without access, where the kernel likes; nothing refers to it.
    unsafe {
        let place = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        place != libc::MAP_FAILED && libc::munmap(place, bytes) == 0
    }
}
