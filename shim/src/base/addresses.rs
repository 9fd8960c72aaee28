//! The address space of the process, which `ulimit -v` may limit.

/// True if the address space has room for a mapping of this size, in bytes.
pub fn are_free(bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping without access, at an address that the kernel chooses; nothing refers
    // to it.
    unsafe {
        let place = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        place != libc::MAP_FAILED && libc::munmap(place, bytes) == 0
    }
}
