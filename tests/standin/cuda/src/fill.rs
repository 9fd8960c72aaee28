//! Memsets of one and two dimensions.

use crate::api::Via;
use crate::capture;
use crate::codes::{INVALID_VALUE, Outcome};
use crate::state::lock;
use crate::work::{Fill, Work};

fn row(address: u64, element: u64, value: u32, width: usize) -> Fill {
    rows(address, 0, element, value, width, 1)
}

fn rows(address: u64, pitch: usize, element: u64, value: u32, width: usize, height: usize) -> Fill {
    Fill {
        address,
        pitch: pitch as u64,
        element,
        value,
        width: width as u64,
        height: height as u64,
    }
}

fn is_empty(fill: &Fill) -> Outcome<bool> {
    match fill.address.is_multiple_of(fill.element) {
        true => Ok(fill.width == 0 || fill.height == 0),
        false => Err(INVALID_VALUE),
    }
}

/// Puts a memset on the default stream. The host does not wait for it.
fn blocking(via: Via, fill: Fill) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, 0)?;
    capture::copy_call(&mut state, key)?;
    match is_empty(&fill)? {
        true => Ok(()),
        false => crate::work::submit(&mut state, key, Work::Fill(fill)),
    }
}

fn queued(via: Via, stream: u64, fill: Fill) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    match is_empty(&fill)? {
        true => Ok(()),
        false => crate::work::submit(&mut state, key, Work::Fill(fill)),
    }
}

api! {
    /// Sets bytes on the default stream.
    cuMemsetD8 3020 => fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds[via](dst: u64, value: u8, count: usize) {
        blocking(via, row(dst, 1, value.into(), count))
    }
    /// Sets 16-bit values on the default stream.
    cuMemsetD16 3020 => fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds[via](dst: u64, value: u16, count: usize) {
        blocking(via, row(dst, 2, value.into(), count))
    }
    /// Sets 32-bit values on the default stream.
    cuMemsetD32 3020 => fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds[via](dst: u64, value: u32, count: usize) {
        blocking(via, row(dst, 4, value, count))
    }
    /// Sets rows of bytes on the default stream.
    cuMemsetD2D8 3020 => fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds[via](dst: u64, pitch: usize, value: u8, width: usize, height: usize) {
        blocking(via, rows(dst, pitch, 1, value.into(), width, height))
    }
    /// Sets rows of 16-bit values on the default stream.
    cuMemsetD2D16 3020 => fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds[via](dst: u64, pitch: usize, value: u16, width: usize, height: usize) {
        blocking(via, rows(dst, pitch, 2, value.into(), width, height))
    }
    /// Sets rows of 32-bit values on the default stream.
    cuMemsetD2D32 3020 => fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds[via](dst: u64, pitch: usize, value: u32, width: usize, height: usize) {
        blocking(via, rows(dst, pitch, 4, value, width, height))
    }
    /// Sets bytes, in the stream's order.
    cuMemsetD8Async 3020 => fn cuMemsetD8Async | cuMemsetD8Async_ptsz[via](dst: u64, value: u8, count: usize, stream: u64) {
        queued(via, stream, row(dst, 1, value.into(), count))
    }
    /// Sets 16-bit values, in the stream's order.
    cuMemsetD16Async 3020 => fn cuMemsetD16Async | cuMemsetD16Async_ptsz[via](dst: u64, value: u16, count: usize, stream: u64) {
        queued(via, stream, row(dst, 2, value.into(), count))
    }
    /// Sets 32-bit values, in the stream's order.
    cuMemsetD32Async 3020 => fn cuMemsetD32Async | cuMemsetD32Async_ptsz[via](dst: u64, value: u32, count: usize, stream: u64) {
        queued(via, stream, row(dst, 4, value, count))
    }
    /// Sets rows of bytes, in the stream's order.
    cuMemsetD2D8Async 3020 => fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz[via](dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) {
        queued(via, stream, rows(dst, pitch, 1, value.into(), width, height))
    }
    /// Sets rows of 16-bit values, in the stream's order.
    cuMemsetD2D16Async 3020 => fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz[via](dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64) {
        queued(via, stream, rows(dst, pitch, 2, value.into(), width, height))
    }
    /// Sets rows of 32-bit values, in the stream's order.
    cuMemsetD2D32Async 3020 => fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz[via](dst: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        queued(via, stream, rows(dst, pitch, 4, value, width, height))
    }
}
