//! Functions: attributes, occupancy and launches.

use crate::abi::{In, LaunchConfig, Out};
use crate::api::Via;
use crate::codes::{INVALID_VALUE, Outcome};
use crate::env::settings;
use crate::state::{State, lock};
use crate::work::Work;

/// Returns an error unless the handle is a launchable function.
pub fn launchable(state: &State, function: u64) -> Outcome {
    state.functions.get(function).map(drop)
}

/// Returns a `CUfunction_attribute` of a kernel that does nothing.
fn attribute(number: u32) -> Outcome<i32> {
    match number {
        0 => Ok(1024),
        1..=3 => Ok(0),
        4 => Ok(16),
        5 | 6 => Ok(90),
        7..=15 => Ok(0),
        _ => Err(INVALID_VALUE),
    }
}

/// Threads of a multiprocessor, which limit occupancy.
const THREADS: i32 = 2048;
/// Highest number of blocks of a multiprocessor.
const BLOCKS: i32 = 32;
/// Number of multiprocessors.
const PROCESSORS: i32 = 132;

/// Returns the number of blocks of `threads` threads that fit on a multiprocessor.
fn resident(threads: i32) -> i32 {
    let whole_warps = (threads + 31) / 32 * 32;
    (THREADS / whole_warps).min(BLOCKS)
}

fn occupancy(blocks: Out<i32>, function: u64, threads: i32) -> Outcome {
    lock()?.functions.get(function)?;
    match threads {
        1..=1024 => blocks.put(resident(threads)),
        _ => Err(INVALID_VALUE),
    }
}

fn potential(grid: Out<i32>, block: Out<i32>, function: u64, limit: i32) -> Outcome {
    lock()?.functions.get(function)?;
    let threads = if limit > 0 { limit.min(1024) } else { 1024 };
    block.put(threads)?;
    grid.put(PROCESSORS * resident(threads))
}

fn launch(via: Via, function: u64, grid: [u32; 3], block: [u32; 3], stream: u64) -> Outcome {
    let mut state = lock()?;
    launchable(&state, function)?;
    if grid.contains(&0) || block.contains(&0) || block.iter().product::<u32>() > 1024 {
        return Err(INVALID_VALUE);
    }
    let key = state.stream(via, stream)?;
    let work = Work::Kernel {
        touches: Vec::new(),
        duration: settings().latency.of("launch"),
    };
    crate::work::submit(&mut state, key, work)
}

api! {
    /// Returns one attribute of a function.
    cuFuncGetAttribute 2020 => fn cuFuncGetAttribute(value: Out<i32>, number: u32, function: u64) {
        lock()?.functions.get(function)?;
        value.put(attribute(number)?)
    }
    /// Checks an attribute's number and ignores its value.
    cuFuncSetAttribute 9000 => fn cuFuncSetAttribute(function: u64, number: u32, _value: i32) {
        lock()?.functions.get(function)?;
        attribute(number).map(drop)
    }
    cuFuncSetCacheConfig 3000 => fn cuFuncSetCacheConfig(function: u64, _config: u32) {
        lock()?.functions.get(function).map(drop)
    }
    /// Returns one attribute of a kernel.
    cuKernelGetAttribute 12000 => fn cuKernelGetAttribute(value: Out<i32>, number: u32, kernel: u64, _device: i32) {
        lock()?.functions.get(kernel)?;
        value.put(attribute(number)?)
    }
    /// Checks an attribute's number and ignores its value.
    cuKernelSetAttribute 12000 => fn cuKernelSetAttribute(number: u32, _value: i32, kernel: u64, _device: i32) {
        lock()?.functions.get(kernel)?;
        attribute(number).map(drop)
    }
    /// Returns the number of blocks that fit on a multiprocessor.
    cuOccupancyMaxActiveBlocksPerMultiprocessor 6050 => fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: u64, threads: i32, _shared: usize) {
        occupancy(blocks, function, threads)
    }
    /// Returns the number of blocks that fit on a multiprocessor.
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000 => fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, function: u64, threads: i32, _shared: usize, _flags: u32) {
        occupancy(blocks, function, threads)
    }
    /// Returns grid and block of a launch that fills the device.
    cuOccupancyMaxPotentialBlockSize 6050 => fn cuOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, function: u64, _shared_of: *const libc::c_void, _shared: usize, limit: i32) {
        potential(grid, block, function, limit)
    }
    /// Returns grid and block of a launch that fills the device.
    cuOccupancyMaxPotentialBlockSizeWithFlags 7000 => fn cuOccupancyMaxPotentialBlockSizeWithFlags(grid: Out<i32>, block: Out<i32>, function: u64, _shared_of: *const libc::c_void, _shared: usize, limit: i32, _flags: u32) {
        potential(grid, block, function, limit)
    }
    /// Launches a kernel. Only its time is modelled (`launch` of `STANDIN_LATENCY`).
    cuLaunchKernel 4000 => fn cuLaunchKernel | cuLaunchKernel_ptsz[via](
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared: u32, stream: u64, _params: *const libc::c_void, _extra: *const libc::c_void,
    ) {
        launch(via, function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream)
    }
    /// Launches a kernel, with attributes.
    cuLaunchKernelEx 11060 => fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz[via](config: In<LaunchConfig>, function: u64, _params: *const libc::c_void, _extra: *const libc::c_void) {
        let config = config.get()?;
        launch(via, function, config.grid, config.block, config.stream)
    }
    /// Launches a kernel whose blocks can synchronise.
    cuLaunchCooperativeKernel 9000 => fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz[via](
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared: u32, stream: u64, _params: *const libc::c_void,
    ) {
        launch(via, function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream)
    }
}
