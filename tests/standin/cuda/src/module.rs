//! Modules and libraries. Nothing is compiled: any name gives a function without effect.

use crate::abi::{Out, Text};
use crate::codes::{INVALID_VALUE, NOT_FOUND, Outcome};
use crate::env::settings;
use crate::state::{State, lock};

#[derive(Debug)]
pub struct Module {
    /// Handle of its context; 0 for a library, which belongs to none.
    pub context: u64,
    /// Device of the context that loaded it, and the bytes taken there.
    pub taken: Option<(i32, u64)>,
    /// Functions looked up so far, in order.
    pub functions: Vec<u64>,
}

#[derive(Debug)]
pub struct Function {
    /// Module or library of the function.
    pub module: u64,
    pub name: std::ffi::CString,
}

fn load(to: Out<u64>, needs_context: bool) -> Outcome {
    to.required()?;
    let mut state = lock()?;
    // A library is loaded for every context. Its memory is taken in the current context, if any.
    let current = state.current();
    let context = if needs_context { current? } else { 0 };
    let bytes = settings().module_bytes;
    let taken = match current.and_then(|current| state.contexts.get(current)) {
        Ok(current) if bytes > 0 => Some((current.device, bytes)),
        _ => None,
    };
    if let Some((device, bytes)) = taken {
        state.charge(device, bytes)?;
    }
    to.put(state.modules.insert(Module {
        context,
        taken,
        functions: Vec::new(),
    }))
}

fn load_data(to: Out<u64>, image: *const libc::c_void, needs_context: bool) -> Outcome {
    match image.is_null() {
        true => Err(INVALID_VALUE),
        false => load(to, needs_context),
    }
}

fn function(state: &mut State, module: u64, name: Text) -> Outcome<u64> {
    let name = std::ffi::CString::new(name.get()?).map_err(|_| NOT_FOUND)?;
    let known = state.modules.get(module)?.functions.iter().copied();
    let same = |function: &u64| {
        state
            .functions
            .get(*function)
            .is_ok_and(|found| found.name == name)
    };
    if let Some(found) = known.into_iter().find(same) {
        return Ok(found);
    }
    let found = state.functions.insert(Function { module, name });
    state.modules.get_mut(module)?.functions.push(found);
    Ok(found)
}

fn unload(module: u64) -> Outcome {
    let mut state = lock()?;
    let gone = state.modules.remove(module)?;
    if let Some((device, bytes)) = gone.taken {
        state.refund(device, bytes);
    }
    for function in gone.functions {
        state.functions.remove(function)?;
    }
    Ok(())
}

/// Forgets the modules of a destroyed context and frees their memory.
pub fn context_gone(state: &mut State, context: u64) {
    let mut taken = Vec::new();
    state.modules.retain(|_, module| {
        let stays = module.context != context;
        taken.extend(module.taken.filter(|_| !stays));
        stays
    });
    for (device, bytes) in taken {
        state.refund(device, bytes);
    }
}

api! {
    /// Loads a module from a file.
    cuModuleLoad 2000 => fn cuModuleLoad(module: Out<u64>, file: Text) {
        match std::fs::exists(file.get()?) {
            Ok(true) => load(module, true),
            _ => Err(crate::codes::FILE_NOT_FOUND),
        }
    }
    /// Loads a module from memory.
    cuModuleLoadData 2000 => fn cuModuleLoadData(module: Out<u64>, image: *const libc::c_void) {
        load_data(module, image, true)
    }
    /// Loads a module from memory, with options.
    cuModuleLoadDataEx 2010 => fn cuModuleLoadDataEx(module: Out<u64>, image: *const libc::c_void, _count: u32, _options: *const u32, _values: *const *const libc::c_void) {
        load_data(module, image, true)
    }
    /// Loads a module from a fat binary.
    cuModuleLoadFatBinary 2000 => fn cuModuleLoadFatBinary(module: Out<u64>, image: *const libc::c_void) {
        load_data(module, image, true)
    }
    /// Unloads a module with its functions.
    cuModuleUnload 2000 => fn cuModuleUnload(module: u64) {
        unload(module)
    }
    /// Returns a function of a module, by its name.
    cuModuleGetFunction 2000 => fn cuModuleGetFunction(to: Out<u64>, module: u64, name: Text) {
        let mut state = lock()?;
        to.put(function(&mut state, module, name)?)
    }
    /// Finds no variable: modules have none here.
    cuModuleGetGlobal 3020 => fn cuModuleGetGlobal_v2(_address: Out<u64>, _bytes: Out<usize>, module: u64, name: Text) {
        lock()?.modules.get(module)?;
        name.get()?;
        Err(NOT_FOUND)
    }
    /// Reports lazy loading of functions.
    cuModuleGetLoadingMode 11070 => fn cuModuleGetLoadingMode(mode: Out<u32>) {
        mode.put(2)
    }
    /// Loads a library from memory.
    cuLibraryLoadData 12000 => fn cuLibraryLoadData(
        library: Out<u64>, code: *const libc::c_void,
        _jit_options: *const u32, _jit_values: *const *const libc::c_void, _jit_count: u32,
        _options: *const u32, _values: *const *const libc::c_void, _count: u32,
    ) {
        load_data(library, code, false)
    }
    /// Loads a library from a file.
    cuLibraryLoadFromFile 12000 => fn cuLibraryLoadFromFile(
        library: Out<u64>, file: Text,
        _jit_options: *const u32, _jit_values: *const *const libc::c_void, _jit_count: u32,
        _options: *const u32, _values: *const *const libc::c_void, _count: u32,
    ) {
        match std::fs::exists(file.get()?) {
            Ok(true) => load(library, false),
            _ => Err(crate::codes::FILE_NOT_FOUND),
        }
    }
    /// Unloads a library with its kernels.
    cuLibraryUnload 12000 => fn cuLibraryUnload(library: u64) {
        unload(library)
    }
    /// Returns a kernel of a library, by its name.
    cuLibraryGetKernel 12000 => fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: Text) {
        let mut state = lock()?;
        kernel.put(function(&mut state, library, name)?)
    }
    /// Returns a library as a module.
    cuLibraryGetModule 12000 => fn cuLibraryGetModule(module: Out<u64>, library: u64) {
        let state = lock()?;
        state.current()?;
        state.modules.get(library)?;
        module.put(library)
    }
    /// Finds no variable: libraries have none here.
    cuLibraryGetGlobal 12000 => fn cuLibraryGetGlobal(_address: Out<u64>, _bytes: Out<usize>, library: u64, name: Text) {
        lock()?.modules.get(library)?;
        name.get()?;
        Err(NOT_FOUND)
    }
    /// Returns a kernel as a function.
    cuKernelGetFunction 12000 => fn cuKernelGetFunction(function: Out<u64>, kernel: u64) {
        lock()?.functions.get(kernel)?;
        function.put(kernel)
    }
    /// Returns the name of a kernel.
    cuKernelGetName 12030 => fn cuKernelGetName(name: Out<*const libc::c_char>, kernel: u64) {
        name.put(lock()?.functions.get(kernel)?.name.as_ptr())
    }
    /// Returns the library of a kernel.
    cuKernelGetLibrary 12050 => fn cuKernelGetLibrary(library: Out<u64>, kernel: u64) {
        library.put(lock()?.functions.get(kernel)?.module)
    }
    /// Returns the module of a function.
    cuFuncGetModule 11000 => fn cuFuncGetModule(module: Out<u64>, function: u64) {
        module.put(lock()?.functions.get(function)?.module)
    }
    /// Returns the name of a function.
    cuFuncGetName 12030 => fn cuFuncGetName(name: Out<*const libc::c_char>, function: u64) {
        name.put(lock()?.functions.get(function)?.name.as_ptr())
    }
}
