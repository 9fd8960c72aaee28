//! Events of device memory outside the pools: devices, contexts, graphs, communicators and modules.

use gpushim_alloc::Context;
use gpushim_trace::{Class, Event, Kind};

use crate::cuda::context;
use crate::record::events::event;
use crate::record::stacks;
use crate::record::trace::{open, opened};

/// Records the driver's figures of a device, in bytes.
pub fn device_memory(device: i32, free: u64, total: u64) {
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        device: u8::try_from(device).unwrap_or(Event::NO_DEVICE),
        size: total.saturating_sub(free),
        extra: [free, total],
        ..event(Kind::DeviceMemory, Class::Device)
    });
}

/// Records a new context, with the device's free and total bytes at that time. False if there is no
/// trace yet.
pub fn context_made(context: Context, device: i32, free: u64, total: u64) -> bool {
    let Some(writer) = opened() else { return false };
    writer.record(&Event {
        device: u8::try_from(device).unwrap_or(Event::NO_DEVICE),
        address: context.0,
        size: total.saturating_sub(free),
        extra: [free, total],
        stack: 0,
        ..event(Kind::ContextMade, Class::Device)
    });
    true
}

/// Records the bytes of a device that this process uses, with the device's free and total bytes at
/// that moment.
pub fn process_memory(device: i32, bytes: u64, free: u64, total: u64) {
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        device: u8::try_from(device).unwrap_or(Event::NO_DEVICE),
        size: bytes,
        extra: [free, total],
        ..event(Kind::ProcessMemory, Class::Device)
    });
}

/// Records a graph that became executable, or an executable one that ended. `bytes`: taken from the
/// current device, or given back to it.
pub fn graph(kind: Kind, handle: u64, bytes: u64) {
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        device: context::device(),
        address: handle,
        size: bytes,
        ..event(kind, Class::Device)
    });
}

/// Records that NCCL begins to make a communicator of these ranks.
pub fn communicator_begins(ranks: u64, rank: u64) {
    let Some(writer) = open() else { return };
    writer.record(&Event {
        device: context::device(),
        stack: stacks::of_allocation(writer, u64::MAX),
        extra: [ranks, rank],
        ..event(Kind::CommunicatorBegin, Class::Device)
    });
}

/// Records the result of NCCL for a communicator; `handle` is 0 if there is none.
pub fn communicator_ends(handle: u64, result: i32) {
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        device: context::device(),
        address: handle,
        result: i16::try_from(result).unwrap_or(i16::MAX),
        ..event(Kind::CommunicatorEnd, Class::Device)
    });
}

/// Records code that was loaded, and its bytes on the current device; `None` without a current
/// context.
pub fn module_loaded(module: u64, bytes: Option<u64>) {
    // Without a context no memory is on a device: a program that only queries devices makes no
    // trace.
    let writer = if bytes.is_some() { open() } else { opened() };
    let Some(writer) = writer else { return };
    writer.record(&Event {
        device: bytes.map_or(Event::NO_DEVICE, |_| context::device()),
        address: module,
        size: bytes.unwrap_or(0),
        ..event(Kind::ModuleLoad, Class::Device)
    });
}
