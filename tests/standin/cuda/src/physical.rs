//! Physical memory for `cuMemMap`: parts of sparse files. Contents stay with the handle at every
//! mapping, and can be shared with a peer process.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crate::abi::MemLocation;
use crate::alias::PHYSICAL;
use crate::codes::{OUT_OF_MEMORY, Outcome, UNKNOWN};
use crate::ranges::Ranges;

/// Size of the sparse file for handles that never leave the process, in bytes.
const COMMON: u64 = 1 << 40;

/// Size of the pieces in which contents are copied, in bytes. Sizes of memory are multiples of it.
const PIECE: usize = 1 << 20;

/// Properties of physical memory (`CUmemAllocationProp`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemProp {
    /// `CUmemAllocationType`: 1 for pinned.
    pub kind: u32,
    /// Bits of `CUmemAllocationHandleType` that the handle can be exported as.
    pub handles: u32,
    /// Device or host that holds it.
    pub location: MemLocation,
    /// Security attributes, used on Windows only.
    pub metadata: u64,
    /// Kind of compression, unused here.
    pub compression: u8,
    /// Not 0 if network cards may reach it.
    pub rdma: u8,
    /// Usage bits, unused here.
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// One piece of physical memory.
#[derive(Clone, Debug)]
pub struct Physical {
    /// File that holds the bytes.
    pub file: Arc<File>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    pub size: u64,
    /// Properties that the caller asked for.
    pub prop: MemProp,
    /// Device whose memory it takes; none for host memory and a peer process's memory.
    pub charged: Option<i32>,
    /// Number of handles and mappings that keep it.
    pub users: u32,
    /// Place of its first byte. No other memory of the process ever has these places.
    pub place: u64,
}

/// All physical memory of this process.
#[derive(Default)]
pub struct Store {
    all: HashMap<u64, Physical>,
    next: u64,
    /// Number of bytes of places assigned.
    placed: u64,
    common: Option<(Arc<File>, Ranges)>,
}

/// Makes a sparse file without a name.
pub fn sparse_file(size: u64) -> Outcome<File> {
    // SAFETY: a constant name that ends in a nul.
    let fd = unsafe { libc::memfd_create(c"standin".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(OUT_OF_MEMORY);
    }
    // SAFETY: a descriptor that was just made, without another owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(size).map_err(|_| OUT_OF_MEMORY)?;
    Ok(file)
}

impl Store {
    /// Makes memory of zeros, with one user. The caller charges the device for it.
    pub fn create(&mut self, size: u64, prop: MemProp, charged: Option<i32>) -> Outcome<u64> {
        let (file, offset) = self.common(size)?;
        Ok(self.insert(Physical {
            file,
            offset,
            size,
            prop,
            charged,
            users: 1,
            place: 0,
        }))
    }

    fn common(&mut self, size: u64) -> Outcome<(Arc<File>, u64)> {
        if self.common.is_none() {
            let mut space = Ranges::default();
            space.give(0, COMMON);
            self.common = Some((Arc::new(sparse_file(COMMON)?), space));
        }
        let (file, space) = self.common.as_mut().ok_or(OUT_OF_MEMORY)?;
        let offset = space.take(size, crate::memory::PAGE).ok_or(OUT_OF_MEMORY)?;
        Ok((file.clone(), offset))
    }

    fn insert(&mut self, mut physical: Physical) -> u64 {
        physical.place = PHYSICAL + self.placed;
        self.placed += physical.size;
        self.next += 1;
        self.all.insert(self.next, physical);
        self.next
    }

    /// Returns the memory of a key.
    pub fn get(&self, key: u64) -> Option<&Physical> {
        self.all.get(&key)
    }

    /// Adds a user to the memory.
    pub fn keep(&mut self, key: u64) {
        if let Some(physical) = self.all.get_mut(&key) {
            physical.users += 1;
        }
    }

    /// Drops a user. The last one frees the memory and returns it, for its device's account.
    pub fn drop_user(&mut self, key: u64) -> Option<Physical> {
        let physical = self.all.get_mut(&key)?;
        physical.users -= 1;
        if physical.users > 0 {
            return None;
        }
        let physical = self.all.remove(&key)?;
        self.give_back(&physical.file, physical.offset, physical.size);
        Some(physical)
    }

    /// Frees a part of the common file; does nothing for another file. Nothing is mapped from the
    /// part any more.
    fn give_back(&mut self, from: &Arc<File>, offset: u64, size: u64) {
        if let Some((file, space)) = &mut self.common
            && Arc::ptr_eq(file, from)
        {
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: the store's own file; the caller has nothing mapped from this part of it any
            // more.
            unsafe { libc::fallocate(file.as_raw_fd(), punch, offset as i64, size as i64) };
            space.give(offset, size);
        }
    }

    /// Moves memory that leaves the process to a file of its own. `remap` maps the new file at its
    /// addresses.
    ///
    /// A process that exports no memory needs one file only.
    pub fn separate(&mut self, key: u64, remap: impl Fn(&File, u64) -> Outcome) -> Outcome {
        let physical = self.all.get_mut(&key).ok_or(UNKNOWN)?;
        let is_common = |(file, _): &(Arc<File>, Ranges)| Arc::ptr_eq(file, &physical.file);
        if !self.common.as_ref().is_some_and(is_common) {
            return Ok(());
        }
        let file = Arc::new(sparse_file(physical.size)?);
        let mut bytes = vec![0; PIECE.min(physical.size as usize)];
        for at in (0..physical.size).step_by(bytes.len()) {
            let copied = physical
                .file
                .read_exact_at(&mut bytes, physical.offset + at)
                .and_then(|()| match bytes.iter().all(|byte| *byte == 0) {
                    true => Ok(()),
                    false => file.write_all_at(&bytes, at),
                });
            copied.map_err(|_| OUT_OF_MEMORY)?;
        }
        remap(&file, physical.size)?;
        let offset = std::mem::replace(&mut physical.offset, 0);
        let size = physical.size;
        let before = std::mem::replace(&mut physical.file, file);
        self.give_back(&before, offset, size);
        Ok(())
    }

    /// Returns a new descriptor of the memory's file, for a peer process or for this one.
    pub fn export(&self, key: u64) -> Outcome<RawFd> {
        let physical = self.all.get(&key).ok_or(UNKNOWN)?;
        // SAFETY: duplicates a descriptor that the store owns; the copy is the caller's.
        let fd = unsafe { libc::fcntl(physical.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 { Err(UNKNOWN) } else { Ok(fd) }
    }

    /// Returns the key of the memory behind a descriptor, with one more user. It may be memory of
    /// this process or of a peer process.
    pub fn import(&mut self, fd: RawFd) -> Outcome<u64> {
        // SAFETY: duplicates a descriptor of the caller's, which stays the caller's; an invalid one
        // is refused.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(UNKNOWN);
        }
        // SAFETY: the duplicate that was just made.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(copy) });
        let known = file.metadata().map_err(|_| UNKNOWN)?;
        let is_same = |physical: &Physical| {
            let own = physical.file.metadata();
            own.is_ok_and(|own| (own.dev(), own.ino()) == (known.dev(), known.ino()))
        };
        if let Some(key) = self
            .all
            .iter()
            .find(|(_, physical)| is_same(physical))
            .map(|(key, _)| *key)
        {
            self.keep(key);
            return Ok(key);
        }
        let prop = MemProp {
            kind: 1,
            handles: 1,
            location: MemLocation { kind: 1, id: 0 },
            metadata: 0,
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let size = known.len();
        Ok(self.insert(Physical {
            file: Arc::new(file),
            offset: 0,
            size,
            prop,
            charged: None,
            users: 1,
            place: 0,
        }))
    }
}

/// Maps a part of a file at an address range that the caller holds.
pub fn map_file(address: u64, size: u64, file: &File, offset: u64) -> Outcome {
    let (protection, sharing) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_FIXED,
    );
    let at = address as *mut libc::c_void;
    // SAFETY: the caller holds this address range and has nothing in it; the file is as long.
    let mapped = unsafe {
        libc::mmap(
            at,
            size as usize,
            protection,
            sharing,
            file.as_raw_fd(),
            offset as i64,
        )
    };
    if mapped == at {
        Ok(())
    } else {
        Err(OUT_OF_MEMORY)
    }
}

/// Maps zeros at an address range that the caller holds, in place of a file.
pub fn unmap_file(address: u64, size: u64) {
    let (protection, sharing) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
    );
    // SAFETY: the caller holds this address range and discards the mapping there.
    unsafe {
        libc::mmap(
            address as *mut libc::c_void,
            size as usize,
            protection,
            sharing,
            -1,
            0,
        )
    };
}
