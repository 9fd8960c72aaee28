//! Steps of several threads or processes at once.

use std::sync::Barrier;

use crate::api::Api;
use crate::op::Step;
use crate::world::World;

/// Allocates in `threads` threads at the same moment.
///
/// Seen: the number of threads that got memory, and natively the free memory before.
pub fn storm(world: &mut World, step: &Step, threads: u8, bytes: u64) -> bool {
    let slot = usize::from(step.context);
    let Some(context) = world
        .contexts
        .get(slot)
        .copied()
        .filter(|context| *context != 0)
    else {
        return false;
    };
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are ours to write.
    unsafe { (world.api.mem_info)(&mut free, &mut total) };
    let (api, start): (&'static Api, Barrier) = (world.api, Barrier::new(threads.into()));
    let got: Vec<u64> = std::thread::scope(|scope| {
        let one = || {
            let (mut address, mut pitch) = (0, 0);
            start.wait();
            // SAFETY: what is pointed to is ours to write.
            let code = unsafe {
                (api.ctx_set)(context);
                (api.alloc_pitch)(&mut address, &mut pitch, 1 << 20, (bytes >> 20) as usize, 4)
            };
            if code == 0 { address } else { 0 }
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        all.into_iter()
            .filter_map(|thread| thread.join().ok())
            .filter(|address| *address != 0)
            .collect()
    });
    world.seen.push(got.len() as u64);
    world.seen.push(if world.native.is_some() {
        0
    } else {
        free as u64
    });
    for address in got {
        // SAFETY: an address that the driver gave.
        unsafe { (api.free)(address) };
    }
    true
}

/// Runs `threads` threads one after another, each with memory on its default stream.
///
/// Seen: the number of threads in which all calls succeeded, or memory was short.
pub fn threads_in_turn(world: &mut World, step: &Step, threads: u8) -> bool {
    let context = world.contexts.get(usize::from(step.context)).copied();
    let Some(context) = context.filter(|context| *context != 0) else {
        return false;
    };
    if !world.captures.is_empty() {
        return false;
    }
    let api: &'static Api = world.api;
    let one = move || {
        const PER_THREAD: u64 = 2;
        const OUT_OF_MEMORY: i32 = 2;
        let mut address = 0;
        // SAFETY: the address is ours to write, and then the driver's.
        let codes = unsafe {
            let current = (api.ctx_set)(context);
            match (api.alloc_async)(&mut address, 1000, PER_THREAD) {
                0 => [
                    current,
                    (api.free_async)(address, PER_THREAD),
                    (api.stream_sync)(PER_THREAD),
                ],
                code => [current, code, 0],
            }
        };
        codes.iter().all(|code| matches!(*code, 0 | OUT_OF_MEMORY))
    };
    let went_well = (0..threads)
        .filter(|_| std::thread::spawn(one).join().is_ok_and(|well| well))
        .count();
    world.seen.push(went_well as u64);
    true
}

/// Forks a child. It exits at once, or calls the driver and gets the error that it is not
/// initialised.
pub fn fork(world: &mut World, calls: bool) -> bool {
    let api = world.api;
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors; all other threads wait for their turn and hold no lock of
    // ours.
    unsafe {
        if libc::pipe(ends.as_mut_ptr()) != 0 {
            return false;
        }
        let child = libc::fork();
        if child == 0 {
            let mut codes = [0u8; 6];
            if calls {
                let (mut address, mut free, mut total, mut context) = (0, 0, 0, 0);
                codes = [
                    (api.mem_info)(&mut free, &mut total),
                    (api.alloc)(&mut address, 4096),
                    (api.alloc_async)(&mut address, 4096, 1),
                    (api.free)(0),
                    (api.ctx_get)(&mut context),
                    (api.init)(0),
                ]
                .map(|code| code as u8);
            }
            libc::write(ends[1], codes.as_ptr().cast(), 6);
            libc::_exit(0);
        }
        libc::close(ends[1]);
        let mut codes = [99u8; 6];
        let got = libc::read(ends[0], codes.as_mut_ptr().cast(), 6);
        libc::close(ends[0]);
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        world.seen.extend([got as u64, status as u64]);
        world.seen.extend(codes.map(u64::from));
    }
    true
}
