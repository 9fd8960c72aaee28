//! Primary contexts: what the program holds of them, and what we hold for the memory of pools.
//!
//! Stream-ordered memory belongs to a device, not to a context: it must not lie in a context that the
//! program may destroy. Driver allocations of such pools are made in the primary context. Where the
//! program does not hold it we retain it ourselves, give that up once nothing lies there, and let the
//! program see the context as it left it.

use std::sync::Mutex;

use gpushim_alloc::Context;
use gpushim_alloc::gate;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, SUCCESS};

/// One device's primary context.
#[derive(Clone, Copy)]
struct Primary {
    device: i32,
    context: Context,
    /// How often the program retained it.
    claims: u32,
    /// Whether the program retained it since it last ended.
    is_active: bool,
    /// Whether we retained it, because the program did not.
    is_ours: bool,
    /// Driver allocations in it that are ours, and those being made.
    used: u64,
    /// Nothing of ours lay there when the background thread last looked.
    is_idle: bool,
}

static TABLE: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

fn update<R>(device: i32, f: impl FnOnce(&mut Primary) -> R) -> Option<R> {
    let mut table = TABLE.lock().ok()?;
    table.iter_mut().find(|one| one.device == device).map(f)
}

fn known(device: i32, context: Context) -> Option<bool> {
    let mut table = TABLE.lock().ok()?;
    if table.iter().all(|one| one.device != device) {
        table.push(Primary {
            device,
            context,
            claims: 0,
            is_active: false,
            is_ours: false,
            used: 0,
            is_idle: false,
        });
    }
    let one = table.iter_mut().find(|one| one.device == device)?;
    one.context = context;
    Some(one.is_ours)
}

/// The program retained a device's primary context. Ours is given up: the program's holds it now.
pub fn retained(device: i32, context: Context) {
    known(device, context);
    let was_ours = update(device, |one| {
        one.claims += 1;
        one.is_active = true;
        std::mem::take(&mut one.is_ours)
    });
    if was_ours == Some(true) {
        release(device);
    }
}

/// The program's primary context of a device, if it has one.
pub fn of(device: i32) -> Option<Context> {
    update(device, |one| one.is_active.then_some(one.context))?
}

/// What a release or a reset by the program means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The program holds nothing: the driver would find no context.
    Nothing,
    /// Others of the program hold it still.
    Stays,
    /// The context ends.
    Ends(Context),
    /// It was never seen to be retained.
    Unknown,
}

/// What it means that the program releases a device's primary context once.
pub fn release_means(device: i32) -> End {
    let means = |one: &mut Primary| match (one.claims, one.is_active) {
        (0, _) if one.is_ours => End::Nothing,
        (0, _) => End::Unknown,
        (1, true) => End::Ends(one.context),
        _ => End::Stays,
    };
    update(device, means).unwrap_or(End::Unknown)
}

/// What it means that the program resets a device's primary context.
pub fn reset_means(device: i32) -> End {
    let means = |one: &mut Primary| match (one.is_active, one.is_ours) {
        (true, _) => End::Ends(one.context),
        (false, true) => End::Nothing,
        (false, false) => End::Unknown,
    };
    update(device, means).unwrap_or(End::Unknown)
}

/// The program released a device's primary context once.
pub fn released(device: i32) {
    update(device, |one| one.claims = one.claims.saturating_sub(1));
}

/// A device's primary context has ended, with what was in it.
pub fn ended(device: i32) {
    update(device, |one| {
        one.is_active = false;
        one.used = 0;
    });
}

/// Whether the context is active only because we hold it.
pub fn is_hidden(device: i32) -> bool {
    update(device, |one| one.is_ours) == Some(true)
}

/// The context for a driver allocation on a device, which counts as made until [`put_back`].
///
/// # Errors
/// The driver's, if the context had to be retained and could not be.
pub fn take(device: i32) -> Result<Context, CUresult> {
    let take = |one: &mut Primary| {
        let is_there = one.is_active || one.is_ours;
        is_there.then(|| {
            one.used += 1;
            one.context
        })
    };
    loop {
        if let Some(context) = update(device, take).flatten() {
            return Ok(context);
        }
        retain(device)?;
    }
}

/// The context that driver allocations on a device are in.
///
/// # Errors
/// As [`take`].
pub fn hold(device: i32) -> Result<Context, CUresult> {
    take(device).inspect(|_| put_back(device))
}

/// One driver allocation fewer in a device's primary context.
pub fn put_back(device: i32) {
    update(device, |one| one.used = one.used.saturating_sub(1));
}

fn retain(device: i32) -> Result<(), CUresult> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: `handle` is ours to write.
    match thread::timed(|| unsafe { real::cuDevicePrimaryCtxRetain(&mut handle, device) }) {
        SUCCESS => {}
        error => return Err(error),
    }
    known(device, Context(handle as u64));
    // One that ended may have had the handle.
    gate::made(Context(handle as u64));
    let is_wanted = update(device, |one| {
        let is_wanted = !one.is_active && !one.is_ours;
        one.is_ours |= is_wanted;
        one.is_idle = false;
        is_wanted
    });
    if is_wanted != Some(true) {
        release(device);
    }
    Ok(())
}

fn release(device: i32) {
    // What the driver refuses here it has given up already.
    // SAFETY: undoes a retain of ours.
    let _ = thread::timed(|| unsafe { real::cuDevicePrimaryCtxRelease_v2(device) });
}

/// The background thread's tick: releases contexts that have held nothing of ours since the previous tick, after
/// calling `gone` for each.
pub fn decay(gone: impl Fn(Context)) {
    let Ok(mut table) = TABLE.lock() else { return };
    let mut idle = Vec::new();
    for one in table.iter_mut().filter(|one| one.is_ours) {
        if one.used > 0 {
            one.is_idle = false;
        } else if !std::mem::replace(&mut one.is_idle, true) {
            // Not yet: memory that comes and goes must not make a context each time.
        } else {
            one.is_ours = false;
            idle.push((one.device, one.context));
        }
    }
    drop(table);
    for (device, context) in idle {
        gone(context);
        release(device);
    }
}
