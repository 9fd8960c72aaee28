//! Memory in pages for other processes: the exporter's side.
//!
//! A handle of such memory is a token (`crates/ipc`). The first one starts a thread that gives importers the descriptors
//! of a block's pages. It waits for no importer, and holds no lock that the program waits for.
//!
//! Pages of a live block neither move nor go back, so that an exported block needs no pin; a segment of PyTorch's is
//! pinned. When it is freed its token
//! is void; importers that have it mapped keep the memory, and the pages may serve other blocks, which they then see.
//! (Natively that is undefined: a program must not free what importers have open.)

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use cudarc::driver::sys;
use gpushim_alloc::Policy;
use gpushim_alloc::elastic::Handle;
use gpushim_alloc::stream_pool::LiveBlock;
use gpushim_ipc::{BATCH, Block, Exports, Piece, Refused, Reply, Request, Server, Token};
use gpushim_trace::background::{self, Background, is_left_alone};

use crate::base::thread::{self, Uncancelled};
use crate::base::{boundary, stderr};
use crate::cuda::captures::relaxed;
use crate::cuda::functions::real;
use crate::cuda::types::check;
use crate::memory::registry::{self, RegisteredPool};
use crate::memory::{elastic, physical};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: u32 = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

/// This process as an exporter.
struct Exporter {
    server: Server,
    exports: Mutex<Exports>,
}

/// Set at the first export. `None`: there is no socket or thread to be had.
static EXPORTER: OnceLock<Option<Exporter>> = OnceLock::new();
/// The sockets, for a forked child; -1: none.
static SOCKETS: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];
/// Set when the process ends: the driver may be gone from then on.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Held while the thread calls the driver, so that the end of the process waits for that.
static WORKING: Mutex<()> = Mutex::new(());

/// A block and the memory that it is in.
#[derive(PartialEq, Eq)]
struct Source {
    block: Block,
    /// Bytes that were asked for.
    requested: u64,
    /// Where the first piece of memory begins.
    base: u64,
    /// The driver's handle and the bytes of each piece.
    pieces: Vec<(u64, u64)>,
}

/// What an address is in that other processes can be given: memory of `cudaMalloc`, as natively. `None`: nothing.
fn source(address: u64) -> Option<Source> {
    if let Some((segment, device, pieces)) = elastic::backing(address) {
        return physical::is_shareable(device).then(|| Source {
            block: Block {
                address: segment.base,
                serial: segment.number as u32,
            },
            requested: segment.bytes,
            base: segment.base,
            pieces: pieces
                .into_iter()
                .map(|Handle { number, bytes, .. }| (number, bytes))
                .collect(),
        });
    }
    let entry = registry::owner(address).filter(|entry| physical::is_shareable(entry.device))?;
    let backing = entry.pool.backing(address)?;
    backing.block.for_all.then_some(Source {
        block: Block {
            address: backing.block.address,
            serial: backing.block.serial,
        },
        requested: backing.block.requested,
        base: backing.base,
        pieces: backing.pieces,
    })
}

/// The memory of a block; `None` if it was freed.
fn find(block: Block) -> Option<Source> {
    source(block.address).filter(|source| source.block == block)
}

/// Whether other processes can be given a block of a pool.
pub fn is_possible(entry: &RegisteredPool, block: &LiveBlock) -> bool {
    block.for_all && physical::is_shareable(entry.device) && entry.pool.policy() == Policy::Vmm
}

/// The token of the block or the segment that contains an address. `None`: it can have none.
pub fn token(address: u64) -> Option<Token> {
    let _uncancelled = Uncancelled::new();
    let source = source(address)?;
    let exporter = EXPORTER.get_or_init(start).as_ref()?;
    let is_live = |block| find(block).is_some();
    let number = exporter.exports.lock().ok()?.add(source.block, is_live);
    Some(Token {
        process: std::process::id(),
        name: exporter.server.name,
        secret: exporter.server.secret,
        block: number,
        bytes: source.requested,
    })
}

/// Whether a token is this process's own.
pub fn is_own(token: &Token) -> bool {
    let exporter = EXPORTER.get().and_then(Option::as_ref);
    exporter.is_some_and(|exporter| exporter.server.name == token.name)
}

fn start() -> Option<Exporter> {
    let server = match Server::open() {
        Ok(server) => server,
        Err(error) => {
            stderr::say(&format!("failed to listen for other processes: {error}"));
            return None;
        }
    };
    for (slot, socket) in SOCKETS.iter().zip(server.descriptors()) {
        slot.store(socket, Ordering::Release);
    }
    // SAFETY: both handlers are `extern "C"` functions that do not unwind.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(stop);
    }
    match background::spawn("gpushim-ipc", 256 << 10, serve) {
        Ok(_) => Some(Exporter {
            server,
            exports: Mutex::default(),
        }),
        Err(error) => {
            stderr::say(&format!(
                "failed to start a thread for other processes: {error}"
            ));
            server.remove();
            None
        }
    }
}

/// A forked child has the sockets, and nobody there answers: importers would wait for nothing after the parent's end.
extern "C" fn in_child() {
    for slot in &SOCKETS {
        let socket = slot.swap(-1, Ordering::AcqRel);
        if socket >= 0 {
            // SAFETY: the child's copy of a socket that only the parent's thread uses.
            unsafe { libc::close(socket) };
        }
    }
}

extern "C" fn stop() {
    STOPPED.store(true, Ordering::Release);
    if boundary::bypassed() {
        // In a forked child: the sockets are the parent's.
        return;
    }
    if let Some(Some(exporter)) = EXPORTER.get() {
        exporter.server.remove();
    }
    // Waits for a call in progress, but not for ever: the process wants to end.
    for _ in 0..100 {
        if WORKING.try_lock().is_ok() {
            break;
        }
        sleep(Duration::from_millis(1));
    }
}

/// The thread.
fn serve() {
    let _background = Background::new();
    // The thread that starts this one is about to store it.
    let exporter = EXPORTER.wait();
    let Some(exporter) = exporter else { return };
    let goes_on = || !STOPPED.load(Ordering::Acquire) && !boundary::bypassed() && !is_left_alone();
    exporter.server.run(goes_on, |request| {
        let Ok(_working) = WORKING.lock() else {
            return Err(Refused::Gone);
        };
        if STOPPED.load(Ordering::Acquire) {
            return Err(Refused::Gone);
        }
        boundary::run(|| Err(Refused::Gone), || answer(exporter, request))
    });
}

/// The descriptors of some pages of a block.
fn answer(exporter: &Exporter, request: &Request) -> Result<Reply<OwnedFd>, Refused> {
    let exports = exporter.exports.lock();
    let block = exports.ok().and_then(|exports| exports.find(request.block));
    let block = block.ok_or(Refused::Gone)?;
    let source = find(block).ok_or(Refused::Gone)?;
    let first = request.first as usize;
    let wanted = source.pieces.iter().skip(first).take(BATCH);
    let described = wanted.map(|&(handle, bytes)| {
        let file = describe(handle).map_err(Refused::Driver)?;
        Ok(Piece { file, bytes })
    });
    let pieces = described.collect::<Result<Vec<_>, _>>();
    // If it was freed meanwhile, the handles may have become those of other memory.
    if find(block).as_ref() != Some(&source) {
        return Err(Refused::Gone);
    }
    Ok(Reply {
        total: source.pieces.len() as u32,
        bytes: source.pieces.iter().map(|(_, bytes)| bytes).sum(),
        offset: source.block.address - source.base,
        pieces: pieces?,
    })
}

/// A descriptor of a piece of memory.
fn describe(handle: u64) -> Result<OwnedFd, u32> {
    let mut file = -1;
    let into = (&raw mut file).cast();
    // SAFETY: the descriptor is ours to write; a handle that is gone is refused.
    let call = || unsafe { real::cuMemExportToShareableHandle(into, handle, DESCRIPTOR, 0) };
    // Another thread's capture goes on.
    check(relaxed(|| thread::call(call)))?;
    // SAFETY: the driver made the descriptor for its caller.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}
