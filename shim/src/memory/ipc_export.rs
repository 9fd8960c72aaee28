//! Memory in pages for other processes: the exporter's side.
//!
//! A handle of such memory is a token (`crates/ipc`). The thread of `ipc_server.rs` gives importers
//! the descriptors of a block's pages.
//!
//! Pages of a live block are neither moved nor freed, so that an exported block needs no pin. A
//! segment of PyTorch's is pinned. When exported memory is freed, its token becomes invalid.
//! Importers that have it mapped keep the memory. The pages may serve other blocks, whose contents
//! the importers then see. (Natively that is undefined: a program must not free memory that
//! importers have open.)

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{LazyLock, Mutex};

use cudarc::driver::sys;
use gpushim_alloc::elastic::Handle;
use gpushim_alloc::pool::LiveBlock;
use gpushim_ipc::{BATCH, Block, Exports, Piece, Refused, Reply, Request, Token};

use crate::base::thread::{self, Uncancelled};
use crate::cuda::captures::relaxed;
use crate::cuda::functions::real;
use crate::cuda::types::check;
use crate::memory::registry::{self, RegisteredPool};
use crate::memory::{elastic, ipc_server, physical};

/// The driver's `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: u32 = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

/// The blocks whose tokens were given away.
static EXPORTS: LazyLock<Mutex<Exports>> = LazyLock::new(Mutex::default);

/// A block, and the memory that contains it.
#[derive(PartialEq, Eq)]
struct Source {
    block: Block,
    /// Bytes that the program asked for.
    requested: u64,
    /// First address of the first piece of memory.
    base: u64,
    /// The driver's handle and the bytes of each piece.
    pieces: Vec<(u64, u64)>,
}

/// Finds the memory at an address that other processes can be given: memory of `cudaMalloc`, as
/// natively.
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
    let found = entry.pool.pieces(address)?;
    found.block.for_all.then_some(Source {
        block: Block {
            address: found.block.address,
            serial: found.block.serial,
        },
        requested: found.block.requested,
        base: found.base,
        pieces: found.pieces,
    })
}

/// Returns the memory of a block; `None` if it was freed.
fn find(block: Block) -> Option<Source> {
    source(block.address).filter(|source| source.block == block)
}

/// True if other processes can be given a block of a pool.
pub fn is_possible(entry: &RegisteredPool, block: &LiveBlock) -> bool {
    block.for_all && physical::is_shareable(entry.device) && entry.pool.is_pages()
}

/// Returns the token of the block or segment that contains an address. `None`: it can have none.
///
/// # Errors
/// The reason for which this process gives none away.
pub fn token(address: u64) -> Option<Result<Token, &'static str>> {
    let _uncancelled = Uncancelled::new();
    let source = source(address)?;
    let server = ipc_server::server()?;
    let is_live = |block| find(block).is_some();
    let number = EXPORTS.lock().ok()?.add(source.block, is_live);
    Some(server.map(|server| Token {
        process: std::process::id(),
        name: server.name,
        secret: server.secret,
        block: number,
        bytes: source.requested,
    }))
}

/// True if a token is this process's own.
pub fn is_own(token: &Token) -> bool {
    ipc_server::name() == Some(&token.name)
}

/// Returns descriptors of some pages of a block, for an importer.
///
/// # Errors
/// The block is gone, or the driver's error.
pub fn pieces(request: &Request) -> Result<Reply<OwnedFd>, Refused> {
    let exports = EXPORTS.lock();
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
    // If it was freed meanwhile, the handles may now be handles of other memory.
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

/// Makes a descriptor of a piece of memory.
fn describe(handle: u64) -> Result<OwnedFd, u32> {
    let mut file = -1;
    let into = (&raw mut file).cast();
    // SAFETY: the descriptor is ours to write; a handle that is gone is refused.
    let call = || unsafe { real::cuMemExportToShareableHandle(into, handle, DESCRIPTOR, 0) };
    // In the relaxed mode: a capture of another thread must not be invalidated.
    check(relaxed(|| thread::call(call)))?;
    // SAFETY: the driver made the descriptor for its caller.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}
