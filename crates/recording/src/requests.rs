//! A plain list of requests: `op,ptr,size,stream,thread,time_ns`. Calls without a stream have `-`
//! and are `cudaMalloc`'s memory; all others are stream-ordered.

use super::csv::{Action, Dialect};
use gpushim_trace::Class;

pub(super) static REQUESTS: Dialect = Dialect {
    format: "list of requests",
    columns: ["op", "ptr", "size", "stream", "thread", "time_ns"],
    actions: &[
        ("alloc", Action::Alloc),
        ("free", Action::Free),
        ("failure", Action::Failure),
    ],
    time: |text| text.parse().ok(),
    wraps: None,
    without_stream: Class::Device,
};
