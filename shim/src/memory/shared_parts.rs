//! Parts of elastic ranges that processes share by descriptors, as PyTorch shares tensors in
//! expandable segments.
//!
//! A part has several pieces of memory, and a descriptor of the driver's has one. So the descriptor
//! is a file with a token (`crates/ipc`). The importer's library gets a handle for it, and
//! `cuMemMap` fetches the pieces that begin in the part.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::{LazyLock, Mutex};

use gpushim_alloc::Driver;
use gpushim_ipc::Token;

use crate::base::boundary;
use crate::base::lock::lock;
use crate::base::thread::Uncancelled;
use crate::cuda::device;
use crate::cuda::types::{CUresult, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use crate::memory::{elastic, ipc_export, ipc_import};

/// Set in handles of parts. The driver's handles are addresses, and promises have one of the bits.
const MARK: u64 = 3 << 62;

/// Tokens by the handles that the program has for them, and memory that is mapped for them.
#[derive(Default)]
struct Imports {
    tokens: BTreeMap<u64, Token>,
    last: u64,
    /// First address and end of the memory, by the address that the program mapped it at.
    mapped: BTreeMap<u64, (u64, u64)>,
}

static IMPORTS: LazyLock<Mutex<Imports>> = LazyLock::new(Mutex::default);

/// Makes a descriptor of the part that is mapped at an address. The range keeps all its memory from
/// then on.
///
/// # Errors
/// Out of memory if some of the range has none; invalid value if there can be no descriptor.
pub fn export(address: u64, bytes: u64) -> Result<RawFd, CUresult> {
    let _uncancelled = Uncancelled::new();
    if !elastic::pin(address) {
        return Err(OUT_OF_MEMORY);
    }
    let token = ipc_export::token_of_part(address, bytes).ok_or(INVALID_VALUE)?;
    let file = token.ok().and_then(|token| token.to_file().ok());
    file.map(File::into_raw_fd).ok_or(INVALID_VALUE)
}

/// Returns a handle for a descriptor with a token. `None`: it has none, and is the driver's.
pub fn import(descriptor: RawFd) -> Option<u64> {
    // SAFETY: the program's descriptor, which it keeps open during its call.
    let file = (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })?;
    let token = Token::from_file(file)?;
    let mut imports = lock(&IMPORTS);
    imports.last += 1;
    let handle = MARK | imports.last;
    imports.tokens.insert(handle, token);
    Some(handle)
}

/// Maps the part of a handle, for the device that is current. `None`: the handle is none of a part.
pub fn map(address: u64, bytes: u64, handle: u64) -> Option<CUresult> {
    let token = (handle & MARK == MARK).then(|| lock(&IMPORTS).tokens.get(&handle).copied())??;
    let _uncancelled = Uncancelled::new();
    boundary::prepare();
    if token.bytes != bytes {
        return Some(INVALID_VALUE);
    }
    Some(match ipc_import::fetch_at(&token, address) {
        Ok(memory) => {
            lock(&IMPORTS).mapped.insert(address, memory);
            SUCCESS
        }
        Err(error) => error,
    })
}

/// Unmaps parts that are mapped in a range of addresses. `None`: there are none.
pub fn unmap(address: u64, bytes: u64) -> Option<CUresult> {
    let mut imports = lock(&IMPORTS);
    let within = imports.mapped.range(address..address.saturating_add(bytes));
    let within: Vec<(u64, (u64, u64))> = within.map(|(at, memory)| (*at, *memory)).collect();
    (!within.is_empty()).then_some(())?;
    for (at, (first, end)) in within {
        if end > first
            && let Err(error) = device::driver().unmap(first, end - first)
        {
            return Some(error);
        }
        imports.mapped.remove(&at);
    }
    Some(SUCCESS)
}

/// Takes a handle of a part back. Mapped memory stays. False: the handle is none of a part.
pub fn release(handle: u64) -> bool {
    handle & MARK == MARK && lock(&IMPORTS).tokens.remove(&handle).is_some()
}
