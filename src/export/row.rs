//! One event as flat columns, with the words of its kind by name.

use serde::Serialize;

use crate::events::flag_names;
use crate::recording::Recording;
use gpushim_trace::{Event, Kind, Record};

/// A row. A value that its event does not have is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// Place in the order of events.
    pub event: u64,
    /// Since the start of the recording.
    pub ns: u64,
    /// Since 1970, where the recording says when it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<u64>,
    pub kind: &'static str,
    pub class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u8>,
    pub thread: u32,
    pub address: u64,
    /// Size of the memory in bytes.
    pub size: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub result: i16,
    /// Names of the flags of an allocation, which say where its memory came from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flags: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    /// Bytes of the block that was handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// Ns that the call spent in the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_ns: Option<u64>,
    /// Allocated bytes of a framework or the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    /// Reserved bytes of the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<u64>,
    /// Free bytes of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// All bytes of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Name of a range, mark or thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
}

fn is_zero(number: &i16) -> bool {
    *number == 0
}

impl Row {
    /// Makes the row of an event.
    pub(super) fn of(recording: &dyn Recording, record: &Record) -> Row {
        let event = &record.event;
        let [first, second] = event.extra;
        let wall = recording.wall_ns();
        let mut row = Row {
            event: record.ticket,
            ns: record.ns,
            wall_ns: (wall > 0).then(|| wall.saturating_add(record.ns)),
            kind: event.kind.name(),
            class: event.class.name(),
            device: (event.device != Event::NO_DEVICE).then_some(event.device),
            thread: event.thread,
            address: event.address,
            size: event.size,
            result: event.result,
            flags: flag_names(event.flags).join(","),
            stream: recording.stream(record),
            stack: (event.stack != 0).then_some(event.stack),
            ..Row::default()
        };
        match event.kind {
            Kind::Alloc | Kind::Free => {
                row.block = Some(event.cost().block.max(event.size));
                row.driver_ns = Some(event.cost().driver_ns.into());
            }
            Kind::TensorAlloc | Kind::TensorFree | Kind::TensorOutOfMemory => {
                (row.allocated, row.reserved) = (Some(first), Some(second));
            }
            Kind::OutOfMemory | Kind::DeviceMemory | Kind::ContextMade | Kind::ProcessMemory => {
                (row.free, row.total) = (Some(first), Some(second));
            }
            Kind::PoolState => {
                (row.allocated, row.reserved) = (Some(event.size), Some(first));
                row.address = 0;
            }
            Kind::RangePush | Kind::RangeStart | Kind::Mark | Kind::ThreadName => {
                row.name = recording.text(event.address);
                row.address = 0;
            }
            Kind::CaptureBegin | Kind::CaptureEnd => row.stream = Some(first),
            _ => {}
        }
        row
    }
}
