//! The callbacks: one for each function of NVTX for ranges, marks, names of threads, domains and
//! strings. Other functions stay the profiler's, or unset.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, RwLock};

use crate::hooks::entry;
use crate::hooks::nvtx::table::{CORE, CORE2, Tables};
use crate::record::ranges::{self, Name, Text};
use crate::record::thread_names;

/// An `nvtxDomainHandle_t` or `nvtxStringHandle_t`: opaque to programs.
type Handle = *mut c_void;
/// The `wchar_t` of Linux: one character.
type Wide = u32;

/// NVTX's `NVTX_NO_PUSH_POP_TRACKING`: the result of a push or pop if no tool keeps a level.
const NO_LEVEL: c_int = -2;

/// NVTX's `NVTX_MESSAGE_TYPE_ASCII`, `..._UNICODE` and `..._REGISTERED`.
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;

/// NVTX's `nvtxEventAttributes_v2`, up to the last field that is read.
#[repr(C)]
struct Attributes {
    version: u16,
    /// Size of the caller's structure in bytes.
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

/// A callback of this library, and the profiler's behind it.
struct Callback {
    id: usize,
    ours: *const c_void,
    /// Its address in the first library that uses NVTX; 0 for none.
    next: OnceLock<usize>,
}

// SAFETY: `ours` is the address of a function.
unsafe impl Sync for Callback {}

impl Callback {
    const fn new(id: usize, ours: *const c_void) -> Self {
        Callback {
            id,
            ours,
            next: OnceLock::new(),
        }
    }

    /// Returns the profiler's callback.
    fn next(&self) -> Option<*const c_void> {
        let address = self.next.get().copied().unwrap_or(0);
        (address != 0).then_some(address as *const c_void)
    }

    /// Writes the callback into a library's table. If the profiler wrote another callback there
    /// than for the first library, the profiler's stays: it is meant for that library.
    fn install(&self, module: usize, tables: &Tables) {
        if let Some(written) = tables.written(module, self.id) {
            let next = *self.next.get_or_init(|| written as usize);
            if next == written as usize {
                tables.write(module, self.id, self.ours);
            }
        }
    }
}

/// True once a profiler takes part: a function that it left out then answers as if no tool were
/// attached.
static BESIDE: AtomicBool = AtomicBool::new(false);

/// Puts the callbacks in front of a profiler's, if there is one.
pub fn install(tables: &Tables, beside: bool) {
    BESIDE.fetch_or(beside, Ordering::Relaxed);
    for callback in core::ALL {
        callback.install(CORE, tables);
    }
    for callback in core2::ALL {
        callback.install(CORE2, tables);
    }
}

/// Declares callbacks: `id name(arguments) -> result`, the result without any tool, and this
/// library's function. The function gets the profiler's result, if there is a profiler, and returns
/// the program's result.
macro_rules! callbacks {
    ($(#[$doc:meta])* mod $module:ident;
     $($id:literal $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $nothing:expr, $own:expr;)*) => {
        $(#[$doc])*
        mod $module {
            use super::*;
            mod slots {
                #![allow(non_upper_case_globals)]
                use super::*;
                $(pub static $name: Callback = Callback::new($id, super::$name as *const c_void);)*
            }
            /// Every callback of the module.
            pub static ALL: &[&Callback] = &[$(&slots::$name),*];
            $(extern "C" fn $name($($arg: $ty),*) -> $ret {
                type Next = unsafe extern "C" fn($($ty),*) -> $ret;
                let theirs = match slots::$name.next() {
                    // SAFETY: a profiler wrote it for NVTX to call with these very arguments.
                    Some(next) => Some(unsafe {
                        std::mem::transmute::<*const c_void, Next>(next)($($arg),*)
                    }),
                    None => BESIDE.load(Ordering::Relaxed).then_some($nothing),
                };
                let own: fn(Option<$ret>, $($ty),*) -> $ret = $own;
                entry::serve(|| theirs.unwrap_or($nothing), || own(theirs, $($arg),*))
            })*
        }
    };
}

callbacks! {
    /// Functions of the default domain.
    mod core;
    1 MarkEx(event: *const Attributes) -> (), (), |_, event| ranges::mark(None, &message(event));
    2 MarkA(text: *const c_char) -> (), (), |_, text| ranges::mark(None, &narrow(text));
    3 MarkW(text: *const Wide) -> (), (), |_, text| ranges::mark(None, &wide(text));
    4 RangeStartEx(event: *const Attributes) -> u64, 0, |theirs, event| ranges::start(None, &message(event), theirs);
    5 RangeStartA(text: *const c_char) -> u64, 0, |theirs, text| ranges::start(None, &narrow(text), theirs);
    6 RangeStartW(text: *const Wide) -> u64, 0, |theirs, text| ranges::start(None, &wide(text), theirs);
    7 RangeEnd(number: u64) -> (), (), |_, number| ranges::end(number);
    8 RangePushEx(event: *const Attributes) -> c_int, NO_LEVEL, |theirs, event| level(theirs, ranges::push(None, &message(event)));
    9 RangePushA(text: *const c_char) -> c_int, NO_LEVEL, |theirs, text| level(theirs, ranges::push(None, &narrow(text)));
    10 RangePushW(text: *const Wide) -> c_int, NO_LEVEL, |theirs, text| level(theirs, ranges::push(None, &wide(text)));
    11 RangePop() -> c_int, NO_LEVEL, |theirs| level(theirs, ranges::pop(None));
    14 NameOsThreadA(thread: u32, text: *const c_char) -> (), (), |_, thread, text| name_thread(thread, &narrow(text));
    15 NameOsThreadW(thread: u32, text: *const Wide) -> (), (), |_, thread, text| name_thread(thread, &wide(text));
}

callbacks! {
    /// Functions that name a domain.
    mod core2;
    1 DomainMarkEx(of: Handle, event: *const Attributes) -> (), (), |_, of, event| ranges::mark(DOMAINS.of(of), &message(event));
    2 DomainRangeStartEx(of: Handle, event: *const Attributes) -> u64, 0, |theirs, of, event| ranges::start(DOMAINS.of(of), &message(event), theirs);
    3 DomainRangeEnd(_of: Handle, number: u64) -> (), (), |_, _of, number| ranges::end(number);
    4 DomainRangePushEx(of: Handle, event: *const Attributes) -> c_int, NO_LEVEL, |theirs, of, event| level(theirs, ranges::push(DOMAINS.of(of), &message(event)));
    5 DomainRangePop(of: Handle) -> c_int, NO_LEVEL, |theirs, of| level(theirs, ranges::pop(DOMAINS.of(of)));
    10 DomainRegisterStringA(_of: Handle, text: *const c_char) -> Handle, NULL, |theirs, _of, text| STRINGS.add(theirs, &narrow(text));
    11 DomainRegisterStringW(_of: Handle, text: *const Wide) -> Handle, NULL, |theirs, _of, text| STRINGS.add(theirs, &wide(text));
    12 DomainCreateA(text: *const c_char) -> Handle, NULL, |theirs, text| DOMAINS.add(theirs, &narrow(text));
    13 DomainCreateW(text: *const Wide) -> Handle, NULL, |theirs, text| DOMAINS.add(theirs, &wide(text));
}

const NULL: Handle = std::ptr::null_mut();

/// Returns the level that a program gets: the profiler's, if there is one.
fn level(theirs: Option<c_int>, ours: c_int) -> c_int {
    theirs.unwrap_or(ours)
}

fn name_thread(thread: u32, text: &Text) {
    if let Text::Plain(name) = text {
        thread_names::given(thread, name);
    }
}

/// Names by the handles that programs have. A handle is the profiler's, if there is one, or else
/// this library's.
struct Handles(RwLock<BTreeMap<usize, &'static Name>>);

static DOMAINS: Handles = Handles(RwLock::new(BTreeMap::new()));
static STRINGS: Handles = Handles(RwLock::new(BTreeMap::new()));

impl Handles {
    /// Returns the name of a handle; `None` for null and for handles that no tool gave out.
    fn of(&self, handle: Handle) -> Option<&'static Name> {
        if handle.is_null() {
            return None;
        }
        self.0.read().ok()?.get(&(handle as usize)).copied()
    }

    /// Adds a text, and returns the handle for it.
    fn add(&self, theirs: Option<Handle>, text: &Text) -> Handle {
        let name = match text {
            Text::Plain(text) => ranges::name(text),
            Text::None | Text::Known(_) => None,
        };
        let Some(name) = name else {
            return theirs.unwrap_or(NULL);
        };
        let handle = theirs.unwrap_or_else(|| std::ptr::from_ref(name).cast_mut().cast());
        if !handle.is_null()
            && let Ok(mut names) = self.0.write()
        {
            names.insert(handle as usize, name);
        }
        handle
    }
}

/// Reads a text of the program.
fn narrow<'a>(text: *const c_char) -> Text<'a> {
    if text.is_null() {
        return Text::None;
    }
    // SAFETY: NVTX's callers give null or a C string, which outlives the call.
    Text::Plain(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// Reads a text of wide characters.
fn wide<'a>(text: *const Wide) -> Text<'a> {
    if text.is_null() {
        return Text::None;
    }
    // SAFETY: NVTX's callers give null or characters that end with a zero, which is as far as is
    // read.
    let character = |at: usize| unsafe { *text.add(at) };
    let characters = (0..).map(character).take_while(|&character| character != 0);
    let plain = characters.map(|c| char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER));
    Text::Plain(plain.collect::<String>().into())
}

/// Reads the name of an event.
fn message<'a>(event: *const Attributes) -> Text<'a> {
    // SAFETY: NVTX's callers give null or a structure that begins with its size.
    let complete = unsafe { event.as_ref() }
        .filter(|event| usize::from(event.size) >= size_of::<Attributes>());
    let Some(event) = complete else {
        return Text::None;
    };
    match event.message_type {
        ASCII => narrow(event.message.cast()),
        UNICODE => wide(event.message.cast()),
        REGISTERED => STRINGS
            .of(event.message.cast_mut())
            .map_or(Text::None, Text::Known),
        _ => Text::None,
    }
}
