//! Devices: their properties, and the attributes that they report.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::abi::{Out, Text};
use crate::codes::{INVALID_DEVICE, INVALID_VALUE, Outcome};
use crate::env::{Feature, Settings, settings};
use crate::state::{State, lock};

#[derive(Debug)]
pub struct Device {
    /// Size of its memory, in bytes.
    pub total: u64,
    /// Memory in use, in bytes.
    pub used: u64,
    /// Highest use of memory since the last call of `standin_peak`, in bytes.
    pub peak: u64,
    /// Handle of its primary context, which may be inactive.
    pub primary: u64,
    /// Number of times that the primary context is retained.
    pub retains: u32,
    /// Flags of the primary context.
    pub primary_flags: u32,
    pub graph_memory: crate::graph_memory::GraphMemory,
}

/// Makes the devices that the settings ask for.
pub fn all(settings: &Settings) -> Vec<Device> {
    let device = |_| Device {
        total: settings.memory,
        used: 0,
        peak: 0,
        primary: 0,
        retains: 0,
        primary_flags: 0,
        graph_memory: Default::default(),
    };
    (0..settings.devices).map(device).collect()
}

impl State {
    /// Returns the device of an ordinal.
    pub fn device(&mut self, ordinal: i32) -> Outcome<&mut Device> {
        let index = usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
        self.devices.get_mut(index).ok_or(INVALID_DEVICE)
    }
}

/// Compute capability of an H100.
const CAPABILITY: (i32, i32) = (9, 0);
/// Device name, unlike that of any product.
const NAME: &str = "gpushim stand-in";

/// Returns the value of a `CUdevice_attribute`, by number. Values are an H100 SXM's, for the
/// attributes that programs ask for. Others are 0.
fn attribute(number: i32, ordinal: i32) -> i32 {
    match number {
        1..=3 => 1024,               // threads of a block, its x, its y
        4 => 64,                     // z of a block
        5 => i32::MAX,               // x of a grid
        6 | 7 => 65535,              // its y, its z
        8 => 49152,                  // shared memory of a block
        9 => 65536,                  // constant memory
        10 => 32,                    // warp
        11 => i32::MAX,              // pitch
        12 | 82 => 65536,            // registers of a block, of a multiprocessor
        13 => 1_980_000,             // clock, kHz
        14 | 30 => 512,              // texture and surface alignment
        15 | 19 | 31 | 32 | 41 => 1, // overlap, host mapping, concurrent kernels, ECC, unified addressing
        16 => 132,                   // multiprocessors
        33 => 1 + ordinal,           // PCI bus
        36 => 2_619_000,             // memory clock, kHz
        37 => 5120,                  // memory bus, bits
        38 => 52_428_800,            // L2 cache
        39 => 2048,                  // threads of a multiprocessor
        40 => 3,                     // copy engines
        21 | 22 | 23 | 27 | 28 | 55 | 56 | 57 => 131_072 >> 2,
        24..=26 => 16384,
        29 | 43 => 2048,
        51 => 32, // texture pitch alignment
        75 => CAPABILITY.0,
        76 => CAPABILITY.1,
        78..=80 | 83 => 1,  // stream priorities, L1 caches, managed memory
        81 => 233_472,      // shared memory of a multiprocessor
        87 => 2,            // single to double precision ratio
        89..=90 => 1,       // concurrent managed access, preemption
        91 => 1,            // host pointer usable for registered memory
        93..=96 => 1,       // stream memory operations, cooperative launches
        97 => 232_448,      // shared memory of a block, opt-in
        99 => 1,            // host register
        102 | 103 => 1,     // VMM, file descriptor handles
        106 => 32,          // blocks of a multiprocessor
        108 => 32_768_000,  // persisting L2
        109 => 134_213_632, // access policy window
        110 | 116 => 1,     // network cards reach memory, VMM's too
        111 => 1024,        // reserved shared memory of a block
        113..=115 => 1,     // read-only register, timeline semaphores, memory pools
        119 => 1,           // pool handle types: file descriptors
        120..=123 => 1,     // clusters, deferred arrays, stream memory operations
        125 | 127 => 1,     // IPC events, tensor maps
        126 => 4,           // memory sync domains
        129 => 1,           // unified function pointers
        131 | 134 => -1,    // NUMA nodes
        _ => 0,
    }
}

/// Returns the feature that an attribute reports: mapped memory with its descriptors, or pools with
/// theirs.
fn feature(number: i32) -> Option<Feature> {
    match number {
        102 | 103 => Some(Feature::Vmm),
        115 | 119 => Some(Feature::Pools),
        _ => None,
    }
}

/// Number of the first attribute that does not exist (`CU_DEVICE_ATTRIBUTE_MAX`, 13.0).
const ATTRIBUTES: i32 = 148;

/// Returns the identity of a device. Processes with a `STANDIN_SHARED` file in common share
/// devices; others have devices of their own.
fn uuid(ordinal: i32) -> [u8; 16] {
    let mut of = DefaultHasher::new();
    match &settings().shared {
        Some(path) => path.hash(&mut of),
        None => std::process::id().hash(&mut of),
    }
    let mut uuid = *b"standin.........";
    uuid[7..15].copy_from_slice(&of.finish().to_ne_bytes());
    uuid[15] = ordinal as u8;
    uuid
}

fn put_text(to: Out<libc::c_char>, room: i32, text: &str) -> Outcome {
    let room = usize::try_from(room)
        .ok()
        .filter(|room| *room > 0)
        .ok_or(INVALID_VALUE)?;
    to.required()?;
    let kept = text.len().min(room - 1);
    for (index, byte) in text.bytes().take(kept).chain([0]).enumerate() {
        to.put_at(index, byte as libc::c_char);
    }
    Ok(())
}

fn bus_id(ordinal: i32) -> String {
    format!("0000:{:02X}:00.0", 1 + ordinal)
}

api! {
    /// Returns a device by its ordinal.
    cuDeviceGet 2000 => fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        lock()?.device(ordinal)?;
        device.put(ordinal)
    }
    cuDeviceGetCount 2000 => fn cuDeviceGetCount(count: Out<i32>) {
        count.put(lock()?.devices.len() as i32)
    }
    /// Writes the name of a device.
    cuDeviceGetName 2000 => fn cuDeviceGetName(name: Out<libc::c_char>, room: i32, device: i32) {
        lock()?.device(device)?;
        put_text(name, room, NAME)
    }
    /// Returns the identity of a device.
    cuDeviceGetUuid 9020 => fn cuDeviceGetUuid(to: Out<[u8; 16]>, device: i32) {
        lock()?.device(device)?;
        to.put(uuid(device))
    }
    /// Returns the identity of a device, or of its MIG part. No device here has MIG parts.
    cuDeviceGetUuid 11040 => fn cuDeviceGetUuid_v2(to: Out<[u8; 16]>, device: i32) {
        lock()?.device(device)?;
        to.put(uuid(device))
    }
    /// Not supported: LUIDs exist on Windows only.
    cuDeviceGetLuid 10000 => fn cuDeviceGetLuid(_luid: Out<[u8; 8]>, _mask: Out<u32>, device: i32) {
        lock()?.device(device)?;
        Err(crate::codes::NOT_SUPPORTED)
    }
    /// Returns the size of a device's memory, in bytes.
    cuDeviceTotalMem 3020 => fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        let total = lock()?.device(device)?.total;
        bytes.put(total as usize)
    }
    /// Returns one attribute of a device.
    cuDeviceGetAttribute 2000 => fn cuDeviceGetAttribute(value: Out<i32>, number: i32, device: i32) {
        lock()?.device(device)?;
        if !(1..ATTRIBUTES).contains(&number) {
            return Err(INVALID_VALUE);
        }
        let is_lacking = feature(number).is_some_and(|feature| settings().lacks(feature));
        value.put(if is_lacking { 0 } else { attribute(number, device) })
    }
    /// Returns the compute capability of a device.
    cuDeviceComputeCapability 2000 => fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        lock()?.device(device)?;
        major.put(CAPABILITY.0)?;
        minor.put(CAPABILITY.1)
    }
    /// Returns a device by its PCI address.
    cuDeviceGetByPCIBusId 4010 => fn cuDeviceGetByPCIBusId(device: Out<i32>, id: Text) {
        let id = id.get()?.to_ascii_uppercase();
        let count = lock()?.devices.len() as i32;
        let found = (0..count).find(|ordinal| bus_id(*ordinal).ends_with(&id) || id.ends_with(&bus_id(*ordinal)));
        device.put(found.ok_or(INVALID_DEVICE)?)
    }
    /// Writes the PCI address of a device.
    cuDeviceGetPCIBusId 4010 => fn cuDeviceGetPCIBusId(id: Out<libc::c_char>, room: i32, device: i32) {
        lock()?.device(device)?;
        put_text(id, room, &bus_id(device))
    }
    /// Reports an execution affinity as unsupported.
    cuDeviceGetExecAffinitySupport 11040 => fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, _kind: u32, device: i32) {
        lock()?.device(device)?;
        supported.put(0)
    }
}
