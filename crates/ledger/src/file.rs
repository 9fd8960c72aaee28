//! File of a ledger: created, checked and mapped.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpushim_descriptors::KeptDescriptor;
use memmap2::{MmapOptions, MmapRaw};

use crate::error::Error;
use crate::layout::{self, Content, MAGIC, Slot, VERSION};

/// Longest wait for a process that creates the file.
const PATIENCE: Duration = Duration::from_secs(2);
const BYTES: u64 = size_of::<Content>() as u64;
/// Descriptor from which on a ledger gets one; usual limits are 1,024 and more.
const HIGH: i32 = 900;
/// Byte of the file that is locked while it is created; the byte of a slot is its number plus 1.
const CREATION: i64 = 0;

/// A ledger in shared memory.
#[derive(Debug)]
pub struct Shared {
    map: MmapRaw,
    descriptor: KeptDescriptor,
    pub path: PathBuf,
}

impl Shared {
    /// Opens the ledger at a path, and creates it if there is none. `mode`: access rights of a new
    /// file. `is_found`: true if the path was chosen by gpushim, so that another user's file is
    /// refused.
    ///
    /// # Errors
    /// The file cannot be opened, is another user's, is no ledger, or is of another version.
    pub fn open(path: &Path, mode: u32, is_found: bool) -> Result<Shared, Error> {
        let open = || format!("open the ledger {}", path.display());
        let file = open_file(path, mode).map_err(|error| Error::of_system(open(), &error))?;
        if is_found {
            check_owner(path, &file)?;
        }
        lock_for(&file, CREATION, PATIENCE).map_err(|error| Error::of_system(open(), &error))?;
        let shared = Shared::create_or_check(path, file, mode);
        // The lock ends with the descriptor at the latest.
        if let Ok(shared) = &shared {
            let _ = shared.unlock(CREATION);
        }
        shared
    }

    /// Opens the ledger at a path for readers. Nothing is created.
    ///
    /// # Errors
    /// As [`Shared::open`]; there is no file.
    pub fn open_existing(path: &Path) -> Result<Shared, Error> {
        let open = || format!("open the ledger {}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(|error| Error::of_system(open(), &error))?;
        let length = file.metadata().map_or(0, |meta| meta.len());
        if length != BYTES {
            return Err(not_one(path));
        }
        // SAFETY: the words are atomics, and nothing is written through a map for reading.
        let map = unsafe { MmapOptions::new().len(BYTES as usize).map(&file) };
        let map = map.map_err(|error| Error::of_system(open(), &error))?;
        Shared::of(path, map.into(), file)?.checked()
    }

    fn create_or_check(path: &Path, file: File, mode: u32) -> Result<Shared, Error> {
        let open = || format!("open the ledger {}", path.display());
        let system = |error: io::Error| Error::of_system(open(), &error);
        let boot = boot();
        let is_new = file.metadata().map_err(system)?.len() == 0;
        if is_new {
            // The user's mask does not apply: the processes of a container may have several users.
            file.set_permissions(fs::Permissions::from_mode(mode))
                .map_err(system)?;
            file.set_len(BYTES).map_err(system)?;
        } else if file.metadata().map_err(system)?.len() != BYTES {
            return Err(not_one(path));
        }
        let map = MmapOptions::new().len(BYTES as usize).map_raw(&file);
        let shared = Shared::of(path, map.map_err(system)?, file)?;
        // A process that was killed here before has left zeros.
        if shared.content().head.magic.load(Ordering::Acquire) == 0 {
            let mut id = [0; 16];
            rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())
                .map_err(|error| system(error.into()))?;
            shared.begin(layout::words(id), boot);
        }
        let shared = shared.checked()?;
        // A kernel that does not tell its boot has proofs by process ids only.
        if boot != [0; 2] && layout::load(&shared.content().head.boot) != boot {
            // The processes of an earlier boot have ended.
            shared.content().slots.iter().for_each(Slot::clear);
            let head = &shared.content().head;
            store(&head.boot, boot);
        }
        Ok(shared)
    }

    fn begin(&self, id: [u64; 2], boot: [u64; 2]) {
        let head = &self.content().head;
        store(&head.id, id);
        store(&head.boot, boot);
        head.version.store(VERSION, Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
    }

    fn of(path: &Path, map: MmapRaw, file: File) -> Result<Shared, Error> {
        let keep = |error| Error::of_system(format!("open the ledger {}", path.display()), &error);
        Ok(Shared {
            map,
            descriptor: KeptDescriptor::keep(file.into()).map_err(keep)?,
            path: path.to_path_buf(),
        })
    }

    fn checked(self) -> Result<Shared, Error> {
        let head = &self.content().head;
        if head.magic.load(Ordering::Acquire) != MAGIC {
            return Err(not_one(&self.path));
        }
        match head.version.load(Ordering::Relaxed) {
            VERSION => Ok(self),
            other => Err(Error::new(format!(
                "use the ledger {}: it is of version {other}, and this gpushim knows version {VERSION}; \
                 remove it when none of its processes runs",
                self.path.display()
            ))),
        }
    }

    /// Returns the content of the file.
    #[inline]
    pub fn content(&self) -> &Content {
        // SAFETY: the file has these bytes and the map is aligned to pages. Each word is an atomic, and
        // any value of a word is valid. The map lives as long as `self`.
        unsafe { &*self.map.as_ptr().cast::<Content>() }
    }

    /// Returns the slots that were ever used.
    #[inline]
    pub fn used(&self) -> &[Slot] {
        let content = self.content();
        let used = content.head.used.load(Ordering::SeqCst) as usize;
        content.slots.get(..used).unwrap_or(&content.slots)
    }

    /// Locks the byte of a slot for this process. False: another process has it.
    ///
    /// # Errors
    /// The system's; the program closed the descriptor.
    pub fn lock_slot(&self, number: usize) -> io::Result<bool> {
        let descriptor = self.descriptor.prove()?;
        lock(descriptor.as_raw_fd(), libc::F_WRLCK, number as i64 + 1)
    }

    /// Unlocks the byte of a slot.
    pub fn unlock_slot(&self, number: usize) {
        // It fails only if the program closed the descriptor, which unlocks, too.
        let _ = self.unlock(number as i64 + 1);
    }

    fn unlock(&self, byte: i64) -> io::Result<bool> {
        let descriptor = self.descriptor.prove()?;
        lock(descriptor.as_raw_fd(), libc::F_UNLCK, byte)
    }

    /// True if a process has locked the byte of a slot.
    pub fn is_locked(&self, number: usize) -> bool {
        let mut region = region(libc::F_WRLCK, number as i64 + 1);
        let Ok(descriptor) = self.descriptor.prove() else {
            return true;
        };
        // SAFETY: the descriptor is open, and the region is ours to write.
        let asked = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETLK, &mut region) };
        asked != 0 || region.l_type != libc::F_UNLCK as libc::c_short
    }
}

impl Slot {
    /// Frees the slot of a process that has ended.
    pub fn clear(&self) {
        for part in &self.parts {
            // A page that was never written stays a hole.
            if part.taken() != layout::Taken::default() {
                part.clear();
            }
        }
        if self.owner.load(Ordering::SeqCst) != 0 {
            self.owner.store(0, Ordering::SeqCst);
        }
    }
}

fn store(words: &[std::sync::atomic::AtomicU64; 2], values: [u64; 2]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Release);
    }
}

/// Opens a file, or creates it. A folder with the sticky bit may forbid `O_CREAT` for another
/// user's file (`fs.protected_regular`), so the file is opened without it first.
fn open_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .mode(mode)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            options.create(true).truncate(false).open(path)?
        }
        opened => opened?,
    };
    match file.metadata()?.is_file() {
        // Before the first lock: any close of a descriptor of the file ends the process's locks.
        true => Ok(with_high_number(file)),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Gives a file a high descriptor, if there is one. The kernel closes an ended process's descriptors
/// in their order: the lock then outlasts the driver's, and with it the memory.
fn with_high_number(file: File) -> File {
    match rustix::io::fcntl_dupfd_cloexec(&file, HIGH) {
        Ok(high) => high.into(),
        Err(_) => file,
    }
}

/// Refuses a file that another user made, unless that is the administrator or asks.
fn check_owner(path: &Path, file: &File) -> Result<(), Error> {
    let owner = file.metadata().map_or(0, |meta| meta.uid());
    let user = rustix::process::geteuid().as_raw();
    if [0, user].contains(&owner) || user == 0 {
        return Ok(());
    }
    Err(Error::new(format!(
        "use the ledger {}: it belongs to user {owner}; name a file that all processes may use by \
         GPUSHIM_LIMIT_SCOPE=/path",
        path.display()
    )))
}

fn not_one(path: &Path) -> Error {
    Error::new(format!(
        "use the ledger {}: it is none, or it is damaged; remove it when none of its processes runs",
        path.display()
    ))
}

/// Returns the identity of the machine's boot: zeros if the kernel does not tell.
fn boot() -> [u64; 2] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    layout::words(u128::from_str_radix(&digits, 16).unwrap_or(0).to_le_bytes())
}

fn region(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

/// Changes the process's lock of a byte (fcntl(2)). False: another process has it.
fn lock(descriptor: i32, kind: i32, byte: i64) -> io::Result<bool> {
    let region = region(kind, byte);
    // SAFETY: the descriptor is open, and the region is only read.
    if unsafe { libc::fcntl(descriptor, libc::F_SETLK, &region) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

fn lock_for(file: &File, byte: i64, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    while !lock(file.as_raw_fd(), libc::F_WRLCK, byte)? {
        if begun.elapsed() > patience {
            return Err(io::Error::other("another process holds it locked"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
