//! Memory in pages for other processes: the exporter's side.
//!
//! A handle of such memory is a token (`crates/ipc`). The thread of `ipc_server.rs` gives importers
//! the descriptors of a block's pages. So it is with blocks of pools, with segments of PyTorch's and
//! with what the program mapped itself.
//!
//! Pages of a live block are neither moved nor freed, so that an exported block needs no pin. A
//! segment of PyTorch's is pinned. When exported memory is freed, its token becomes invalid.
//! Importers that have it mapped keep the memory. The pages may serve other blocks, whose contents
//! the importers then see. (Natively that is undefined: a program must not free memory that
//! importers have open.)

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{LazyLock, Mutex};
use std::{mem, ptr};

use cudarc::driver::sys::CUpointer_attribute;
use gpushim_alloc::pool::LiveBlock;
use gpushim_ipc::{BATCH, Block, Exports, Piece, Refused, Reply, Request, Token};

use crate::base::thread::{self, Uncancelled};
use crate::cuda::captures::relaxed;
use crate::cuda::functions::real;
use crate::cuda::types::{SUCCESS, check};
use crate::memory::mappings::{self, Mapping};
use crate::memory::physical::DESCRIPTOR;
use crate::memory::registry::{self, RegisteredPool};
use crate::memory::{elastic, ipc_server, miss, physical, policy};

/// The blocks whose tokens were given away.
static EXPORTS: LazyLock<Mutex<Exports>> = LazyLock::new(Mutex::default);

/// A block, and the memory that contains it.
struct Source {
    block: Block,
    /// First address and bytes of each piece of memory, in the order of their addresses.
    pieces: Vec<(u64, u64)>,
}

impl Source {
    /// Returns a part of the memory: of its block, the pieces that begin in the part.
    fn part(self, block: Block) -> Source {
        let Source {
            block: all,
            mut pieces,
        } = self;
        if block != all {
            let within = block.address..block.address + block.bytes;
            pieces.retain(|(at, _)| within.contains(at));
        }
        Source { block, pieces }
    }
}

/// Marks of serial numbers: segments and mappings of the program count for themselves.
const OF_SEGMENT: u64 = 1 << 62;
const OF_PROGRAM: u64 = 1 << 63;

/// Returns the places of pieces that follow each other without a gap.
fn placed(base: u64, sizes: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let place = |at: &mut u64, bytes| Some((mem::replace(at, *at + bytes), bytes));
    sizes.scan(base, place).collect()
}

/// Finds the memory of this library at an address that other processes can be given: memory of
/// `cudaMalloc`, as natively.
fn served(address: u64) -> Option<Source> {
    if let Some((segment, pieces)) = elastic::backing(address) {
        let block = Block {
            address: segment.base,
            bytes: segment.bytes,
            serial: OF_SEGMENT | segment.number,
        };
        return Some(Source { block, pieces });
    }
    let entry = registry::owner(address).filter(|entry| physical::is_shareable(entry.device))?;
    let found = entry.pool.pieces(address)?;
    found.block.for_all.then(|| Source {
        block: Block {
            address: found.block.address,
            bytes: found.block.requested,
            serial: found.block.serial.into(),
        },
        pieces: placed(found.base, found.pieces.iter().map(|(_, bytes)| *bytes)),
    })
}

/// Finds the block at an address where the program mapped memory itself. `None`: it did not, or its
/// memory has no descriptors.
///
/// The block is the mapping and those that follow it without a gap. At the beginning of reserved
/// addresses it is all that is mapped there: `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` names this
/// place for each address in them.
fn mapped(address: u64) -> Option<Block> {
    let around = mappings::around(address).map(|(base, _)| base);
    let (start, end) = pointer_range(around.or_else(|| mappings::next(address))?)?;
    let base = around.or_else(|| (start == address).then_some(start))?;
    let mut all = mappings::within(base..end);
    let mut covered = base;
    if base != start {
        let mut follows =
            |(at, mapping): &(u64, Mapping)| *at == mem::replace(&mut covered, at + mapping.bytes);
        let gap = all.iter().position(|found| !follows(found));
        all.truncate(gap.unwrap_or(all.len()));
    }
    let (last, mapping) = all.last()?;
    let newest = all.iter().map(|(_, mapping)| mapping.number).max()?;
    describe(all.first()?.0).ok()?;
    Some(Block {
        address: base,
        bytes: last + mapping.bytes - base,
        serial: OF_PROGRAM | newest,
    })
}

/// Returns the reserved addresses around an address where memory is mapped.
fn pointer_range(address: u64) -> Option<(u64, u64)> {
    let ask = |attribute: CUpointer_attribute| {
        let mut value = 0_u64;
        let into = (&raw mut value).cast();
        // SAFETY: `value` is ours to write, and as wide as both attributes.
        let call = || unsafe { real::cuPointerGetAttribute(into, attribute as i32, address) };
        (thread::call(call) == SUCCESS).then_some(value)
    };
    let start = ask(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?;
    let bytes = ask(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE)?;
    Some((start, start.saturating_add(bytes)))
}

/// Returns the memory of a block; `None` if it was freed. Of memory that the program mapped itself,
/// what has been unmapped since is missing.
fn find(block: Block) -> Option<Source> {
    if block.serial & OF_PROGRAM == 0 {
        let source = served(block.address).filter(|source| source.block.serial == block.serial)?;
        return Some(source.part(block));
    }
    let mapped = mappings::within(block.address..block.address + block.bytes).into_iter();
    let of_block = mapped.filter(|(_, mapping)| OF_PROGRAM | mapping.number <= block.serial);
    let pieces: Vec<_> = of_block.map(|(at, mapping)| (at, mapping.bytes)).collect();
    (!pieces.is_empty()).then_some(Source { block, pieces })
}

/// True if other processes can be given a block of a pool.
pub fn is_possible(entry: &RegisteredPool, block: &LiveBlock) -> bool {
    block.for_all && physical::is_shareable(entry.device) && entry.pool.is_pages()
}

/// Returns the token of the block or segment that contains an address, or of the program's own
/// mapping there. `None`: it can have none.
///
/// # Errors
/// The reason for which this process gives none away.
pub fn token(address: u64) -> Option<Result<Token, &'static str>> {
    let _uncancelled = Uncancelled::new();
    let block = match served(address) {
        Some(source) => source.block,
        None if policy::is_off() => return None,
        None => {
            let block = mapped(address)?;
            // There may be no pool yet, and so no server.
            miss::begins();
            block
        }
    };
    give(block)
}

/// Returns the token of a part of a pinned segment. `None`: there is no such memory.
///
/// # Errors
/// As [`token`].
pub fn token_of_part(address: u64, bytes: u64) -> Option<Result<Token, &'static str>> {
    let serial = served(address)?.block.serial;
    give(Block {
        address,
        bytes,
        serial,
    })
}

fn give(block: Block) -> Option<Result<Token, &'static str>> {
    let server = ipc_server::server()?;
    let is_live = |block| find(block).is_some();
    let number = EXPORTS.lock().ok()?.add(block, is_live);
    Some(server.map(|server| Token {
        process: std::process::id(),
        name: server.name,
        secret: server.secret,
        block: number,
        bytes: block.bytes,
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
    let end_of = |(at, bytes): &(u64, u64)| at + bytes;
    let base = source
        .pieces
        .first()
        .map_or(block.address, |(at, _)| (*at).min(block.address));
    let end = source
        .pieces
        .last()
        .map_or(0, end_of)
        .max(block.address + block.bytes);
    let before = |(at, _): &&(u64, u64)| at - base < request.from;
    let following: Vec<_> = source.pieces.iter().skip_while(before).collect();
    let wanted = &following[..following.len().min(BATCH)];
    let described = wanted.iter().map(|&&(at, bytes)| {
        let file = describe(at).map_err(Refused::Driver)?;
        let at = at - base;
        Ok(Piece { file, at, bytes })
    });
    let pieces = described.collect::<Result<Vec<_>, _>>();
    // If it was freed meanwhile, other memory may now be at these addresses.
    let is_there = |source: Source| wanted.iter().all(|piece| source.pieces.contains(piece));
    if !find(block).is_some_and(is_there) {
        return Err(Refused::Gone);
    }
    Ok(Reply {
        rest: (following.len() - wanted.len()) as u32,
        bytes: end - base,
        offset: block.address - base,
        pieces: pieces?,
    })
}

/// Makes a descriptor of the memory that is mapped at an address.
fn describe(address: u64) -> Result<OwnedFd, u32> {
    let (mut handle, mut file) = (0, -1);
    let at = ptr::without_provenance_mut(address as usize);
    // SAFETY: `handle` is ours to write.
    let retain = || unsafe { real::cuMemRetainAllocationHandle(&mut handle, at) };
    // In the relaxed mode: a capture of another thread must not be invalidated.
    check(relaxed(|| thread::call(retain)))?;
    let into = (&raw mut file).cast();
    // SAFETY: the descriptor is ours to write; the handle was just given out.
    let export = || unsafe { real::cuMemExportToShareableHandle(into, handle, DESCRIPTOR, 0) };
    let exported = check(relaxed(|| thread::call(export)));
    // SAFETY: the handle was given out above, and is given back once.
    relaxed(|| thread::call(|| unsafe { real::cuMemRelease(handle) }));
    exported?;
    // SAFETY: the driver made the descriptor for its caller.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}
