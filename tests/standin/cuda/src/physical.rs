//! Physical memory that `cuMemMap` puts behind addresses: parts of sparse files, so that contents
//! stay with the handle wherever it is mapped, and can be handed to another process.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crate::abi::MemLocation;
use crate::alias::PHYSICAL;
use crate::codes::{OUT_OF_MEMORY, Outcome, UNKNOWN};
use crate::ranges::Ranges;

/// Size of the file that handles share which never leave the process, in bytes. Sparse.
const COMMON: u64 = 1 << 40;

/// Contents are copied in pieces of this size, in bytes; memory has a multiple of it.
const PIECE: usize = 1 << 20;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemProp {
    /// `CUmemAllocationType`: 1 for pinned.
    pub kind: u32,
    /// `CUmemAllocationHandleType` bits that the handle can be exported as.
    pub handles: u32,
    /// Where.
    pub location: MemLocation,
    /// Windows only.
    pub metadata: u64,
    /// Compression.
    pub compression: u8,
    /// Whether network cards may reach it.
    pub rdma: u8,
    /// Usage bits.
    pub usage: u16,
    /// Reserved.
    pub reserved: [u8; 4],
}

/// One piece of physical memory.
#[derive(Clone, Debug)]
pub struct Physical {
    /// Its file, and where in it.
    pub file: Arc<File>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// What was asked for.
    pub prop: MemProp,
    /// The device whose memory it takes; none for the host's, and for another process's.
    pub charged: Option<i32>,
    /// Handles and mappings that keep it.
    pub users: u32,
    /// Where the history of its bytes is kept: no other memory has the same places, then or now.
    pub place: u64,
}

/// All physical memory of this process.
#[derive(Default)]
pub struct Store {
    all: HashMap<u64, Physical>,
    next: u64,
    /// Bytes of places given out.
    placed: u64,
    common: Option<(Arc<File>, Ranges)>,
}

/// A new sparse file without a name.
pub fn sparse_file(size: u64) -> Outcome<File> {
    // SAFETY: a constant name that ends in a nul.
    let fd = unsafe { libc::memfd_create(c"standin".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(OUT_OF_MEMORY);
    }
    // SAFETY: a descriptor that was just made and that has no other owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(size).map_err(|_| OUT_OF_MEMORY)?;
    Ok(file)
}

impl Store {
    /// New memory of zeros, with one user. Whether a device has room for it is the caller's business.
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

    /// The memory of a key.
    pub fn get(&self, key: u64) -> Option<&Physical> {
        self.all.get(&key)
    }

    /// One more user.
    pub fn keep(&mut self, key: u64) {
        if let Some(physical) = self.all.get_mut(&key) {
            physical.users += 1;
        }
    }

    /// One user less. The last one gives the memory back: it is returned, for its device's account.
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

    /// A part of the common file, if it is one, is free: nothing is mapped from it any more.
    fn give_back(&mut self, from: &Arc<File>, offset: u64, size: u64) {
        if let Some((file, space)) = &mut self.common
            && Arc::ptr_eq(file, from)
        {
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: our own file; the caller has nothing mapped from this part of it any more.
            unsafe { libc::fallocate(file.as_raw_fd(), punch, offset as i64, size as i64) };
            space.give(offset, size);
        }
    }

    /// Gives memory that leaves the process a file of its own, with what is in it; `remap` puts that file where the
    /// memory is mapped. A process that exports none has one file, however much memory it has.
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

    /// A descriptor of the memory's file for another process, or for this one.
    pub fn export(&self, key: u64) -> Outcome<RawFd> {
        let physical = self.all.get(&key).ok_or(UNKNOWN)?;
        // SAFETY: duplicates a descriptor that we own; the copy is the caller's.
        let fd = unsafe { libc::fcntl(physical.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 { Err(UNKNOWN) } else { Ok(fd) }
    }

    /// The memory behind a descriptor, with one user more: this process's own, or another's.
    pub fn import(&mut self, fd: RawFd) -> Outcome<u64> {
        // SAFETY: duplicates a descriptor of the caller's, which stays the caller's; an invalid one is refused.
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

/// Puts a file's bytes at an address that we hold.
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

/// Puts plain zeros at an address that we hold, in place of a file.
pub fn unmap_file(address: u64, size: u64) {
    let (protection, sharing) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
    );
    // SAFETY: the caller holds this address range; what was mapped there is given up.
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
