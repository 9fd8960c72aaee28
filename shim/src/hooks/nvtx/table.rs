//! The tables of one library that uses NVTX, with the places of its functions' callbacks.

use std::ffi::{c_int, c_uint, c_void};

/// NVTX's `NvtxGetExportTableFunc_t`.
pub type GetExportTable = unsafe extern "C" fn(u32) -> *const ExportTable;

/// NVTX's `NVTX_ETID_CALLBACKS`.
const CALLBACKS: u32 = 1;
/// NVTX's `NVTX_CB_MODULE_CORE` and `..._CORE2`: functions without and with a domain.
pub const CORE: usize = 1;
pub const CORE2: usize = 5;
/// Number of the last `NVTX_CB_MODULE_`.
const LAST_MODULE: usize = 6;

/// NVTX's `NvtxExportTableCallbacks`.
#[repr(C)]
pub struct ExportTable {
    /// Size of the table in bytes.
    size: usize,
    get_module: Option<
        unsafe extern "C" fn(
            module: c_uint,
            table: *mut *const *mut *const c_void,
            entries: *mut c_uint,
        ) -> c_int,
    >,
}

/// The place of one callback.
struct Slot {
    module: usize,
    id: usize,
    place: *mut *const c_void,
    /// Initial value: NVTX's own function that leads to the initialisation.
    first: *const c_void,
}

/// Places of all callbacks.
pub struct Tables(Vec<Slot>);

impl Tables {
    /// Reads the tables behind NVTX's function, with their present values.
    ///
    /// # Safety
    /// NVTX gave the function, and no callback is called until the initialisation is complete.
    pub unsafe fn of(get: GetExportTable) -> Option<Tables> {
        // SAFETY: the function answers every number, with a table or null.
        let table = unsafe { get(CALLBACKS).as_ref() }?;
        let get_module = table
            .get_module
            .filter(|_| table.size >= size_of::<ExportTable>())?;
        let mut slots = Vec::new();
        for module in CORE..=LAST_MODULE {
            let (mut places, mut entries) = (std::ptr::null(), 0);
            // SAFETY: both are ours to write.
            let known = unsafe { get_module(module as c_uint, &mut places, &mut entries) };
            if known == 0 || places.is_null() {
                continue;
            }
            // SAFETY: NVTX's table has `entries` entries, and lives as long as the library.
            let places = unsafe { std::slice::from_raw_parts(places, entries as usize) };
            let present = places.iter().enumerate().filter(|(_, at)| !at.is_null());
            slots.extend(present.map(|(id, &place)| Slot {
                module,
                id,
                place,
                // SAFETY: not null, and so a place of a function pointer.
                first: unsafe { *place },
            }));
        }
        Some(Tables(slots))
    }

    /// Restores the initial callbacks.
    pub fn restore(&self) {
        for slot in &self.0 {
            // SAFETY: the place is NVTX's, and may be written until the initialisation is complete.
            unsafe { *slot.place = slot.first };
        }
    }

    /// Returns the callback that a tool wrote; null if none did. `None`: this library has no such
    /// function.
    pub fn written(&self, module: usize, id: usize) -> Option<*const c_void> {
        let slot = self.slot(module, id)?;
        // SAFETY: as above, to read.
        let now = unsafe { *slot.place };
        Some(if now == slot.first {
            std::ptr::null()
        } else {
            now
        })
    }

    /// Writes a callback of this library.
    pub fn write(&self, module: usize, id: usize, callback: *const c_void) {
        if let Some(slot) = self.slot(module, id) {
            // SAFETY: as above.
            unsafe { *slot.place = callback };
        }
    }

    fn slot(&self, module: usize, id: usize) -> Option<&Slot> {
        self.0
            .iter()
            .find(|slot| slot.module == module && slot.id == id)
    }
}
