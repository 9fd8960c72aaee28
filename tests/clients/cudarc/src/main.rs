//! A CUDA program written with cudarc, run with and without the shim: its output must not change.
//!
//! It allocates, copies there and back, frees, runs out of memory and reads the memory information.
//! It uses cudarc's safe interface (stream-ordered where the device has it) and the plain calls.
//! The last line has the number of its allocations, for the comparison with the trace.

use cudarc::driver::{CudaContext, DriverError, result};

/// Bytes of one block of the out-of-memory test.
const BLOCK: usize = 64 << 20;

/// Successful requests of this program.
#[derive(Default)]
struct Count {
    sync: u64,
    sync_bytes: usize,
    ordered: u64,
}

impl Count {
    /// Calls `cuMemAlloc` and counts it.
    fn allocate(&mut self, bytes: usize) -> Result<u64, DriverError> {
        // SAFETY: a context is current (`main` bound it); the address is used within its bytes
        // only.
        let address = unsafe { result::malloc_sync(bytes) }?;
        self.sync += 1;
        self.sync_bytes += bytes;
        Ok(address)
    }
}

/// `cuMemFree` of a block that nothing uses any more.
fn free(address: u64) -> Result<(), DriverError> {
    // SAFETY: the address came from `Count::allocate`, is freed once, and has no work in flight.
    unsafe { result::free_sync(address) }
}

/// Bytes that depend on the place and a seed.
fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i * 31 + seed * 17 + (i >> 8)) as u8)
        .collect()
}

/// Blocks of several sizes: written, freed in another order, read back before.
fn copies(count: &mut Count) -> Result<(), DriverError> {
    let mut live = Vec::new();
    for turn in 0..50usize {
        let data = pattern(1 + turn * 7919 % 200_000, turn);
        let address = count.allocate(data.len())?;
        // SAFETY: the block has as many bytes as the slice, and the copy has ended on return.
        unsafe { result::memcpy_htod_sync(address, &data) }?;
        live.push((turn, address, data));
        if live.len() > 5 {
            let (turn, address, data) = live.remove(turn % 4);
            let mut back = vec![0u8; data.len()];
            // SAFETY: as above, in the other direction.
            unsafe { result::memcpy_dtoh_sync(&mut back, address) }?;
            if turn % 5 == 0 {
                println!("copy {turn} {} equal {}", data.len(), back == data);
            } else if back != data {
                println!("copy {turn} differs");
            }
            free(address)?;
        }
    }
    for (_, address, _) in live {
        free(address)?;
    }
    Ok(())
}

/// Allocates until the driver says no, frees all, and takes most of it again in one piece.
fn out_of_memory(count: &mut Count) -> Result<(), DriverError> {
    let mut live = Vec::new();
    let error = loop {
        match count.allocate(BLOCK) {
            Ok(address) => live.push(address),
            Err(error) => break error,
        }
    };
    println!("blocks until out of memory {} {:?}", live.len(), error.0);
    for address in live.drain(..) {
        free(address)?;
    }
    let (available, _) = result::mem_get_info()?;
    let large = available / BLOCK * BLOCK - BLOCK;
    let address = count.allocate(large)?;
    println!("large {large}");
    free(address)?;
    println!(
        "huge {:?}",
        count.allocate(1 << 44).map_err(|error| error.0)
    );
    Ok(())
}

fn main() -> Result<(), DriverError> {
    let mut count = Count::default();
    let context = CudaContext::new(0)?;
    context.bind_to_thread()?;
    println!(
        "devices {} total {}",
        CudaContext::device_count()?,
        context.total_mem()?
    );

    let (before, total) = context.mem_get_info()?;
    let address = count.allocate(BLOCK)?;
    let (during, _) = context.mem_get_info()?;
    free(address)?;
    let (after, _) = context.mem_get_info()?;
    println!(
        "info total {total} taken {} back {}",
        before - during,
        before == after
    );

    copies(&mut count)?;

    // The safe interface: vectors on the device, with a stream of their own.
    let stream = context.new_stream()?;
    for turn in 0..20usize {
        let data = pattern(4096 * (turn + 1), turn);
        let there = stream.clone_htod(&data)?;
        let zeros = stream.alloc_zeros::<u8>(1000)?;
        if context.has_async_alloc() {
            count.ordered += 2;
        } else {
            count.sync += 2;
            count.sync_bytes += data.len() + 1000;
        }
        let equal =
            stream.clone_dtoh(&there)? == data && stream.clone_dtoh(&zeros)? == vec![0u8; 1000];
        if !equal || turn % 5 == 0 {
            println!("vector {turn} equal {equal}");
        }
    }
    stream.synchronize()?;

    out_of_memory(&mut count)?;
    println!(
        "allocations {} bytes {} stream-ordered {}",
        count.sync, count.sync_bytes, count.ordered
    );
    Ok(())
}
