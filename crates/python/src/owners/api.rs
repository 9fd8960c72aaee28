//! Functions of CPython's C interface that the walk needs, all of them exported since 3.8.

use std::ffi::{CStr, c_char, c_double, c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Method, MethodDef};

/// Address of a Python object.
pub type Object = *mut c_void;

/// `Py_file_input` (Include/compile.h).
pub const FILE_INPUT: c_int = 257;

/// `METH_VARARGS` and `METH_NOARGS` (Include/methodobject.h).
pub const WITH_ARGUMENTS: c_int = 1;
const WITHOUT_ARGUMENTS: c_int = 4;

/// `ob_type` of an object (Include/object.h).
pub const TYPE: usize = 8;

/// Interface that methods use; null before [`Api::share`]. It is never freed.
static SHARED: AtomicPtr<Api> = AtomicPtr::new(ptr::null_mut());

/// Reads a word of an object.
///
/// # Safety
/// The object is alive and has a word at this offset, bytes.
pub unsafe fn word(object: Object, offset: usize) -> Object {
    // SAFETY: the caller promises it.
    unsafe { object.byte_add(offset).cast::<Object>().read() }
}

macro_rules! interface {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions and objects of the interpreter.
        #[derive(Clone, Copy, Debug)]
        pub struct Api {
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// True since 3.11: variables are in frames of the interpreter, to which frame objects
            /// refer.
            pub has_inner_frames: bool,
            /// The object `None`, borrowed.
            pub none: Object,
            /// Functions between which a thread's tracer and profiler are not called; since 3.11.
            tracing: Option<[unsafe extern "C" fn(Object); 2]>,
            /// The thread state that holds the GIL.
            state: unsafe extern "C" fn() -> Object,
        }

        impl Api {
            /// Looks them up by their names. `None` if one is missing.
            ///
            /// # Safety
            /// The addresses that `look` gives are CPython's functions and objects of these names,
            /// or null.
            pub unsafe fn find(minor: u8, look: impl Fn(&CStr) -> *mut c_void) -> Option<Api> {
                let some = |name: &CStr| Some(look(name)).filter(|found| !found.is_null());
                // SAFETY: CPython's functions have these signatures.
                unsafe {
                    let tracing = |name| some(name).map(|found| std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Object)>(found));
                    Some(Api {
                        $($field: std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(some($name)?),)*
                        has_inner_frames: minor >= 11,
                        none: some(c"_Py_NoneStruct")?,
                        tracing: tracing(c"PyThreadState_EnterTracing").zip(tracing(c"PyThreadState_LeaveTracing")).map(|(enter, leave)| [enter, leave]),
                        state: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> Object>(some(c"PyThreadState_Get")?),
                    })
                }
            }
        }
    };
}

interface! {
    is_initialized = c"Py_IsInitialized": fn() -> c_int;
    add_pending = c"Py_AddPendingCall": fn(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;
    take_gil = c"PyGILState_Ensure": fn() -> c_int;
    give_gil = c"PyGILState_Release": fn(c_int);
    pause = c"PyEval_SaveThread": fn() -> Object;
    resume = c"PyEval_RestoreThread": fn(Object);
    builtins = c"PyEval_GetBuiltins": fn() -> Object;
    dict = c"PyDict_New": fn() -> Object;
    put = c"PyDict_SetItemString": fn(Object, *const c_char, Object) -> c_int;
    get = c"PyDict_GetItemString": fn(Object, *const c_char) -> Object;
    compile = c"Py_CompileString": fn(*const c_char, *const c_char, c_int) -> Object;
    evaluate = c"PyEval_EvalCode": fn(Object, Object, Object) -> Object;
    call_with = c"PyObject_CallObject": fn(Object, Object) -> Object;
    attribute = c"PyObject_GetAttrString": fn(Object, *const c_char) -> Object;
    import = c"PyImport_ImportModule": fn(*const c_char) -> Object;
    tuple_of = c"PyTuple_New": fn(isize) -> Object;
    tuple_put = c"PyTuple_SetItem": fn(Object, isize, Object) -> c_int;
    tuple_get = c"PyTuple_GetItem": fn(Object, isize) -> Object;
    tuple_size = c"PyTuple_Size": fn(Object) -> isize;
    list_get = c"PyList_GetItem": fn(Object, isize) -> Object;
    list_size = c"PyList_Size": fn(Object) -> isize;
    bytes_of = c"PyBytes_FromStringAndSize": fn(*const c_char, isize) -> Object;
    float = c"PyFloat_FromDouble": fn(c_double) -> Object;
    long = c"PyLong_FromLong": fn(c_long) -> Object;
    as_long = c"PyLong_AsLong": fn(Object) -> c_long;
    utf8 = c"PyUnicode_AsUTF8AndSize": fn(Object, *mut isize) -> *const c_char;
    take_error = c"PyErr_Fetch": fn(*mut Object, *mut Object, *mut Object);
    put_error = c"PyErr_Restore": fn(Object, Object, Object);
    clear = c"PyErr_Clear": fn();
    keep = c"Py_IncRef": fn(Object);
    drop_one = c"Py_DecRef": fn(Object);
    method_of = c"PyCFunction_NewEx": fn(*const c_void, Object, Object) -> Object;
}

/// All of them need the GIL, and objects that are alive.
impl Api {
    /// Returns another reference to an object.
    ///
    /// # Safety
    /// The thread holds the GIL, and the object is alive.
    pub unsafe fn more(&self, object: Object) -> Object {
        // SAFETY: the caller promises it.
        unsafe { (self.keep)(object) };
        object
    }

    /// Drops a reference, if there is one.
    ///
    /// # Safety
    /// The thread holds the GIL, and the object is alive.
    pub unsafe fn drop(&self, object: Object) {
        // SAFETY: the caller promises it; null is accepted.
        unsafe { (self.drop_one)(object) };
    }

    /// Returns a `bytes` of these words.
    ///
    /// # Safety
    /// The thread holds the GIL.
    pub unsafe fn bytes(&self, words: &[u64]) -> Object {
        // SAFETY: the words are copied.
        unsafe { (self.bytes_of)(words.as_ptr().cast(), size_of_val(words) as isize) }
    }

    /// Returns a tuple that takes the references, or null if one of them is null.
    ///
    /// # Safety
    /// The thread holds the GIL, and the objects are alive.
    pub unsafe fn tuple(&self, items: &[Object]) -> Object {
        // SAFETY: the caller promises it; places are within the tuple.
        unsafe {
            let tuple = (self.tuple_of)(items.len() as isize);
            let is_whole = !tuple.is_null() && items.iter().all(|item| !item.is_null());
            for (item, place) in items.iter().zip(0..) {
                match is_whole {
                    true => drop((self.tuple_put)(tuple, place, *item)),
                    false => self.drop(*item),
                }
            }
            if is_whole {
                return tuple;
            }
            self.drop(tuple);
        }
        ptr::null_mut()
    }

    /// Returns the result of a call, null if it raises. Takes the arguments; null makes no call.
    ///
    /// # Safety
    /// The thread holds the GIL, and the objects are alive.
    pub unsafe fn call(&self, function: Object, arguments: Object) -> Object {
        if arguments.is_null() {
            return arguments;
        }
        // SAFETY: the caller promises it.
        unsafe {
            let result = (self.call_with)(function, arguments);
            self.drop(arguments);
            result
        }
    }

    /// The text of a `str`.
    ///
    /// # Safety
    /// As above; the text is not used after the object.
    pub unsafe fn text<'a>(&self, object: Object) -> Option<&'a str> {
        let mut bytes = 0;
        // SAFETY: the caller promises it; CPython gives that many bytes of UTF-8.
        unsafe {
            let text = (self.utf8)(object, &mut bytes);
            if text.is_null() {
                (self.clear)();
                return None;
            }
            std::str::from_utf8(std::slice::from_raw_parts(
                text.cast(),
                usize::try_from(bytes).ok()?,
            ))
            .ok()
        }
    }

    /// Runs `act` without the thread's tracer and profiler, if the version supports it.
    ///
    /// # Safety
    /// The thread holds the GIL.
    pub unsafe fn untraced<T>(&self, act: impl FnOnce() -> T) -> T {
        let Some([enter, leave]) = self.tracing else {
            return act();
        };
        // SAFETY: the caller promises that the thread has a state; the two belong together.
        unsafe {
            let state = (self.state)();
            enter(state);
            let result = act();
            leave(state);
            result
        }
    }

    /// Returns true if code of this file raised the current exception. One of a signal handler is
    /// not its own: the traceback of that loses the calls of this file.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn is_ours(&self, file: &CStr) -> bool {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the caller promises it; what was taken is put back, and the attributes are
        // dropped.
        unsafe {
            (self.take_error)(&mut kind, &mut value, &mut trace);
            while !trace.is_null() && trace != self.none {
                let code = self.path(trace, &[c"tb_frame", c"f_code", c"co_filename"]);
                let is_call_of_ours =
                    !code.is_null() && self.text(code).map(str::as_bytes) == Some(file.to_bytes());
                self.drop(code);
                if !is_call_of_ours {
                    break;
                }
                let next = (self.attribute)(trace, c"tb_next".as_ptr());
                self.drop(trace);
                trace = next;
            }
            if trace == self.none {
                self.drop(trace);
                trace = ptr::null_mut();
            }
            // A signal handler in C, as that of Ctrl-C, has no frame of its own, and raises no
            // `Exception`.
            let is_ours = trace.is_null() && (kind.is_null() || self.is_exception(kind));
            (self.put_error)(kind, value, trace);
            is_ours
        }
    }

    /// True for `Exception` and its subclasses.
    unsafe fn is_exception(&self, kind: Object) -> bool {
        // SAFETY: the caller promises it; `__mro__` of a class is a tuple.
        unsafe {
            let exception = (self.get)((self.builtins)(), c"Exception".as_ptr());
            let order = (self.attribute)(kind, c"__mro__".as_ptr());
            if order.is_null() {
                (self.clear)();
                return false;
            }
            let mut classes = (0..)
                .map(|place| (self.tuple_get)(order, place))
                .take_while(|class| !class.is_null());
            let found = classes.any(|class| class == exception);
            // Beyond the end of the tuple was asked.
            (self.clear)();
            self.drop(order);
            found
        }
    }

    /// Returns an attribute of an attribute, or null.
    unsafe fn path(&self, object: Object, names: &[&CStr]) -> Object {
        // SAFETY: the caller promises it.
        unsafe {
            let mut at = self.more(object);
            for name in names {
                let next = (self.attribute)(at, name.as_ptr());
                self.drop(at);
                if next.is_null() {
                    (self.clear)();
                    return next;
                }
                at = next;
            }
            at
        }
    }

    /// Gives this interface to methods.
    fn share(&self) {
        if SHARED.load(Ordering::Acquire).is_null() {
            SHARED.store(Box::into_raw(Box::new(*self)), Ordering::Release);
        }
    }

    /// Returns the interface, for a method. `None` before a method was made.
    pub fn shared() -> Option<&'static Api> {
        // SAFETY: it was set when a method was made, and stays.
        unsafe { SHARED.load(Ordering::Acquire).as_ref() }
    }

    /// A method as an object; null if there is no memory.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn method(&self, of: &'static MethodDef) -> Object {
        self.share();
        // SAFETY: the table entry stays.
        unsafe { (self.method_of)(ptr::from_ref(of).cast(), ptr::null_mut(), ptr::null_mut()) }
    }

    /// Registers a function of the end in the module `atexit`, which is built in.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn register_at_end(&self, act: Method) -> bool {
        // SAFETY: the caller promises it; the table entry is never freed.
        unsafe {
            let module = (self.import)(c"atexit".as_ptr());
            if module.is_null() {
                (self.clear)();
                return false;
            }
            let register = (self.attribute)(module, c"register".as_ptr());
            self.drop(module);
            if register.is_null() {
                (self.clear)();
                return false;
            }
            let of = Box::leak(Box::new(MethodDef {
                name: c"gpushim_owners_at_end".as_ptr(),
                function: act,
                flags: WITHOUT_ARGUMENTS,
                about: ptr::null(),
            }));
            let done = self.call(register, self.tuple(&[self.method(of)]));
            self.drop(register);
            if done.is_null() {
                (self.clear)();
                return false;
            }
            self.drop(done);
            true
        }
    }
}
