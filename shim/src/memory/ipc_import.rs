//! Memory in pages of other processes: the importer's side.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once};
use std::{mem, ptr};

use cudarc::driver::sys;
use gpushim_alloc::Context;
use gpushim_alloc::Driver;
use gpushim_ipc::{Link, Piece, Refused, Reply, Request, Token};

use crate::base::thread::{self, Uncancelled};
use crate::base::{boundary, stderr};
use crate::cuda::captures::relaxed;
use crate::cuda::device::{self, Cuda};
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, INVALID_CONTEXT, INVALID_VALUE, check};
use crate::cuda::{context, green};
use crate::memory::physical::DESCRIPTOR;
use crate::memory::{context_drain, ipc_export};

/// The driver's `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only flag, which the driver demands.
const LAZY_PEER_ACCESS: u32 = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;

/// A block of another process that is mapped here.
struct Import {
    token: Token,
    /// The context in which it is open. The import ends with it, as natively.
    context: Context,
    /// Number of times that it is open.
    count: u32,
    range: Range,
}

/// Reserved addresses of an import, and the memory in them.
#[derive(Clone, Copy)]
struct Range {
    base: u64,
    bytes: u64,
    /// Bytes before the block, which begins within the first piece.
    offset: u64,
    /// Bytes up to the end of the last piece of memory.
    mapped: u64,
}

/// Imports by the address of the block.
static IMPORTS: Mutex<BTreeMap<u64, Import>> = Mutex::new(BTreeMap::new());
/// Number of imports in the table.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Opens a token in the current context. `None`: the handle is no token, and the driver must
/// answer.
pub fn open(handle: &sys::CUipcMemHandle, flags: u32) -> Option<Result<u64, CUresult>> {
    let token = Token::decode(&handle.reserved.map(|byte| byte as u8))?;
    let _uncancelled = Uncancelled::new();
    boundary::prepare();
    Some(open_token(token, flags))
}

fn open_token(token: Token, flags: u32) -> Result<u64, CUresult> {
    let context = context::current()
        .map(green::owner)
        .ok_or(INVALID_CONTEXT)?;
    if flags != LAZY_PEER_ACCESS {
        return Err(INVALID_VALUE);
    }
    if ipc_export::is_own(&token) {
        return Err(INVALID_CONTEXT);
    }
    if let Some(address) = again(&token, context) {
        return Ok(address);
    }
    let device = device::driver().ordinal_of(context)?;
    let range = fetch(&token, device)?;
    let address = range.base + range.offset;
    let import = Import {
        token,
        context,
        count: 1,
        range,
    };
    // Another thread may have opened it meanwhile.
    let known = again(&token, context);
    if known.is_some() {
        release(device::driver(), range);
    } else if let Ok(mut imports) = IMPORTS.lock() {
        imports.insert(address, import);
        COUNT.store(imports.len(), Ordering::Release);
    }
    Ok(known.unwrap_or(address))
}

/// Adds a user to an import that is open in the context already. Returns its address.
fn again(token: &Token, context: Context) -> Option<u64> {
    let mut imports = IMPORTS.lock().ok()?;
    let is_same = |import: &Import| import.token == *token && import.context == context;
    let (address, import) = imports.iter_mut().find(|(_, import)| is_same(import))?;
    import.count += 1;
    Some(*address)
}

/// Maps the block of a token for a device.
fn fetch(token: &Token, device: i32) -> Result<Range, CUresult> {
    let driver = device::driver();
    let link = Link::to(&token.name).map_err(|error| unreachable(token, &error))?;
    let reply = ask(&link, token, 0)?;
    if !token.fits(reply.bytes, reply.offset) {
        return Err(INVALID_VALUE);
    }
    let mut range = Range {
        base: driver.reserve(device, reply.bytes)?,
        bytes: reply.bytes,
        offset: reply.offset,
        mapped: 0,
    };
    let filled = fill((&link, token), reply, &mut range, device);
    filled.inspect_err(|_| release(driver, range))?;
    Ok(range)
}

/// Maps the memory of a token's block at an address that the program reserved, for the current
/// device. Returns the first address of the memory and its end.
///
/// # Errors
/// The driver's, or invalid value if the exporter does not answer. Nothing is mapped then.
pub fn fetch_at(token: &Token, address: u64) -> Result<(u64, u64), CUresult> {
    let driver = device::driver();
    let context = context::current().ok_or(INVALID_CONTEXT)?;
    let device = driver.ordinal_of(context)?;
    let link = Link::to(&token.name).map_err(|error| unreachable(token, &error))?;
    let reply = ask(&link, token, 0)?;
    let first = address + reply.pieces.first().map_or(0, |piece| piece.at);
    if reply.offset > 0 || !token.fits(reply.bytes, 0) {
        return Err(INVALID_VALUE);
    }
    let mut range = Range {
        base: address,
        bytes: reply.bytes,
        offset: 0,
        mapped: 0,
    };
    let filled = match reply.pieces.is_empty() {
        true => Ok(()),
        false => fill((&link, token), reply, &mut range, device),
    };
    let end = address + range.mapped;
    filled.inspect_err(|_| {
        if end > first {
            // The addresses are the program's: nothing else can be done about memory that stays.
            let _ = driver.unmap(first, end - first);
        }
    })?;
    Ok((first, end))
}

/// Maps all pieces of a block, of which the exporter has told the first ones.
fn fill(
    (link, token): (&Link, &Token),
    mut reply: Reply<OwnedFd>,
    range: &mut Range,
    device: i32,
) -> Result<(), CUresult> {
    loop {
        // A wrong answer of the exporter must not keep this thread for ever.
        if reply.pieces.is_empty() {
            return Err(INVALID_VALUE);
        }
        for piece in reply.pieces.drain(..) {
            place(device::driver(), range, piece, device)?;
        }
        if reply.rest == 0 {
            return Ok(());
        }
        reply = ask(link, token, range.mapped)?;
    }
}

/// Asks for the pieces of a block that lie behind this many bytes.
fn ask(link: &Link, token: &Token, from: u64) -> Result<Reply<OwnedFd>, CUresult> {
    let request = Request {
        secret: token.secret,
        block: token.block,
        from,
    };
    let reply = link.fetch(&request);
    let reply = reply.map_err(|error| unreachable(token, &error))?;
    reply.map_err(|refused| match refused {
        Refused::Gone => INVALID_VALUE,
        Refused::Driver(code) => code,
    })
}

/// Maps one piece behind the mapped ones, for a device.
fn place(
    driver: &Cuda,
    range: &mut Range,
    piece: Piece<OwnedFd>,
    device: i32,
) -> Result<(), CUresult> {
    let Piece { at, bytes, .. } = piece;
    let is_behind = at >= range.mapped && bytes > 0;
    let mapped = at.checked_add(bytes).filter(|_| is_behind);
    let mapped = mapped.filter(|mapped| *mapped <= range.bytes);
    let mapped = mapped.ok_or(INVALID_VALUE)?;
    let mut handle = 0;
    let file = ptr::without_provenance_mut(piece.file.as_raw_fd() as usize);
    // SAFETY: `handle` is ours to write; the descriptor is passed by value, and stays ours.
    let call = || unsafe { real::cuMemImportFromShareableHandle(&mut handle, file, DESCRIPTOR) };
    check(relaxed(|| thread::call(call)))?;
    let result = driver.map(range.base + at, bytes, handle);
    // The mapping keeps the memory.
    // SAFETY: the handle was made here, and is given back once.
    thread::call(|| unsafe { real::cuMemRelease(handle) });
    result?;
    range.mapped = mapped;
    driver.allow(range.base + at, bytes, &[device])
}

/// Gives memory and addresses back to the driver. No work uses them.
fn release(driver: &Cuda, range: Range) {
    if range.mapped > 0 && driver.unmap(range.base, range.mapped).is_err() {
        // Addresses that still have memory must not be used for other memory.
        return;
    }
    driver.unreserve(range.base, range.bytes);
}

/// Says once, in one line, that the exporter does not answer: the error code alone does not show
/// it.
fn unreachable(token: &Token, error: &std::io::Error) -> CUresult {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        stderr::say(&format!(
            "failed to open an IPC handle: process {} (its own id) does not answer: {error}; is it still there, of the \
             same user, and in the same network namespace or with the same /tmp?",
            token.process
        ));
    });
    INVALID_VALUE
}

/// Closes an import. `None`: no import begins at this address, and the driver must answer.
pub fn close(address: u64) -> Option<Result<(), CUresult>> {
    let of = last_use(address)?;
    let _uncancelled = Uncancelled::new();
    if let Some(context) = of {
        // The driver's own close waits, too: work may still use the memory.
        if let Err(error) = context_drain::context(context) {
            return Some(Err(error));
        }
    }
    let range = {
        let mut imports = IMPORTS.lock().ok()?;
        let import = imports.get_mut(&address)?;
        import.count -= 1;
        if import.count > 0 {
            return Some(Ok(()));
        }
        let range = imports.remove(&address)?.range;
        COUNT.store(imports.len(), Ordering::Release);
        range
    };
    release(device::driver(), range);
    Some(Ok(()))
}

/// Returns the context of an import that is open once, and `Some(None)` if it is open more often.
/// `None`: no import.
fn last_use(address: u64) -> Option<Option<Context>> {
    let imports = imports()?;
    let import = imports.get(&address)?;
    Some((import.count == 1).then_some(import.context))
}

/// Returns the imports, if there are any.
fn imports() -> Option<MutexGuard<'static, BTreeMap<u64, Import>>> {
    (COUNT.load(Ordering::Acquire) > 0).then(|| IMPORTS.lock().ok())?
}

/// A block of another process that this process has open.
pub struct Opened {
    /// The first address in this process.
    pub address: u64,
    /// Bytes that the exporter's program asked for.
    pub bytes: u64,
    /// The context that the block was opened in.
    pub context: Context,
}

/// Finds the import that contains an address.
pub fn find(address: u64) -> Option<Opened> {
    let imports = imports()?;
    let (base, import) = imports.range(..=address).next_back()?;
    (address - base < import.token.bytes).then_some(Opened {
        address: *base,
        bytes: import.token.bytes,
        context: import.context,
    })
}

/// Removes the imports of a context that has ended.
pub fn context_gone(gone: Context) {
    let Some(mut imports) = imports() else {
        return;
    };
    let all = mem::take(&mut *imports).into_iter();
    let (ended, rest) = all.partition::<BTreeMap<_, _>, _>(|(_, import)| import.context == gone);
    *imports = rest;
    COUNT.store(imports.len(), Ordering::Release);
    drop(imports);
    for import in ended.values() {
        release(device::driver(), import.range);
    }
}
