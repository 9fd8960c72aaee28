//! Files with holes, on a file system where a hole cannot be read through a mapping.
//!
//! On tmpfs a read of a page in a hole takes space. If the file system is full, the access faults.
//! Then the content is read into memory, which takes no space for holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memmap2::{MmapMut, MmapRaw};

use crate::sparse;

const PAGE: usize = 4096;

/// True if the first hole of a file can be read through its mapping. Also true if there is no hole,
/// or the kernel cannot tell.
pub(super) fn are_readable(file: &File, map: &MmapRaw) -> bool {
    let Some(hole) = sparse::hole(file, 0).and_then(|hole| usize::try_from(hole).ok()) else {
        return true;
    };
    let page = hole.next_multiple_of(PAGE);
    if page >= map.len() {
        return true;
    }
    // SAFETY: the page is within the mapping, and advice to read it changes nothing in it.
    let advised = unsafe {
        let page = map.as_ptr().add(page);
        libc::madvise(page as *mut libc::c_void, PAGE, libc::MADV_POPULATE_READ)
    };
    advised == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// Returns the first `size` bytes of a file. Holes are zeros that take no memory.
///
/// # Errors
/// The address space is short, or the file cannot be read.
pub(super) fn read(file: &File, size: usize) -> io::Result<MmapRaw> {
    let mut memory = MmapMut::map_anon(size)?;
    let mut at = 0;
    while let Some(data) = sparse::data(file, at).filter(|data| *data < size as u64) {
        let end = sparse::hole(file, data).map_or(size as u64, |end| end.min(size as u64));
        let Some(part) = memory.get_mut(data as usize..end as usize) else {
            break;
        };
        match file.read_exact_at(part, data) {
            // Truncated meanwhile: the rest stays zeros.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            other => other?,
        }
        at = end;
    }
    Ok(memory.into())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use memmap2::MmapOptions;

    #[test]
    fn what_is_read_is_what_is_mapped() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(b"data", 300_000).unwrap();
        let map = MmapOptions::new().map_raw_read_only(&file).unwrap();
        assert!(are_readable(&file, &map));
        let read = read(&file, 1 << 20).unwrap();
        // SAFETY: both mappings are of this many bytes, and nothing writes to them.
        let bytes =
            |map: &MmapRaw| unsafe { std::slice::from_raw_parts(map.as_ptr(), 1 << 20).to_vec() };
        assert_eq!(bytes(&map), bytes(&read));
    }
}
