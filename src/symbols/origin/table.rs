//! The table by which functions are told apart: the first entry that fits says where a function comes from.
//!
//! What fits no entry is the user's own code. Each entry has an example in `tests.rs`.

use super::Origin;

/// By what a function is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Python whose file has this in its path; `*` is anything. A path begins with `/`, and its separators are `/`.
    File(&'static str),
    /// The same, if the function has one of these names, its class aside.
    Python(&'static str, &'static [&'static str]),
    /// Native code of a module whose file name begins so.
    Module(&'static str),
    /// Native code of a module that has this in its path; `*` is anything.
    Folder(&'static str),
    /// Native code whose name, without type and parameters, begins so.
    Name(&'static str),
    /// Native code of this name.
    Exact(&'static str),
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub of: Of,
    pub origin: Origin,
}

const fn file(part: &'static str, origin: Origin) -> Entry {
    let of = Of::File(part);
    Entry { of, origin }
}

const fn python(part: &'static str, names: &'static [&'static str], origin: Origin) -> Entry {
    let of = Of::Python(part, names);
    Entry { of, origin }
}

const fn module(start: &'static str, origin: Origin) -> Entry {
    let of = Of::Module(start);
    Entry { of, origin }
}

const fn folder(part: &'static str, origin: Origin) -> Entry {
    let of = Of::Folder(part);
    Entry { of, origin }
}

const fn name(start: &'static str, origin: Origin) -> Entry {
    let of = Of::Name(start);
    Entry { of, origin }
}

const fn exact(name: &'static str, origin: Origin) -> Entry {
    let of = Of::Exact(name);
    Entry { of, origin }
}

/// Names of functions of libraries that wrap another function.
const WRAPPERS: &[&str] = &[
    "wrapper",
    "wrapped",
    "wrapped_func",
    "wrapper_func",
    "wrapped_fn",
    "wrapped_method",
    "inner",
    "_fn",
    "_wrapper",
    "decorate_context",
    "decorate_fwd",
    "decorate_bwd",
    "decorate_autocast",
    "autocast_decorator",
    "error_handler",
    "profile_hook_step",
    "_use_grad",
    "new_forward",
];
/// What `Module.__call__` consists of.
const CALLS: &[&str] = &["_call_impl", "_wrapped_call_impl", "_slow_forward"];

pub(super) const TABLE: &[Entry] = &[
    // Python.
    file("/<frozen ", Origin::Interpreter),
    file("/<__array_function__ internals>", Origin::Plumbing),
    python("/torch/nn/modules/module.py", CALLS, Origin::Plumbing),
    python(
        "/torch/autograd/graph.py",
        &["_engine_run_backward"],
        Origin::Plumbing,
    ),
    python("/torch/autograd/function.py", &["apply"], Origin::Plumbing),
    python("/torch/_jit_internal.py", &["fn"], Origin::Plumbing),
    python(
        "/transformers/modeling_layers.py",
        &["__call__"],
        Origin::Plumbing,
    ),
    file("/torch/_ops.py", Origin::Plumbing),
    file("/torch/_compile.py", Origin::Plumbing),
    file("/torch/_dynamo/", Origin::Plumbing),
    file("/torch/_functorch/", Origin::Plumbing),
    file("/torch/_inductor/", Origin::Plumbing),
    file("/torch/_library/", Origin::Plumbing),
    file("/torch/_higher_order_ops/", Origin::Plumbing),
    file("/torch/overrides.py", Origin::Plumbing),
    file("/torch/utils/_contextlib.py", Origin::Plumbing),
    file("/torch/utils/_python_dispatch.py", Origin::Plumbing),
    file("/torch/profiler/", Origin::Recorder),
    file("/torch/cuda/_memory_viz.py", Origin::Recorder),
    file("/accelerate/utils/operations.py", Origin::Plumbing),
    file("/triton/runtime/", Origin::Plumbing),
    file("/triton/backends/", Origin::Plumbing),
    file("/jax/_src/numpy/", Origin::Library),
    file("/jax/_src/", Origin::Plumbing),
    file("/jaxlib/", Origin::Plumbing),
    file("/tensorflow/python/eager/", Origin::Plumbing),
    file("/tensorflow/python/util/", Origin::Plumbing),
    file("/traceback_utils.py", Origin::Plumbing),
    file("/numba/cuda/cudadrv/", Origin::Plumbing),
    file("/rmm/", Origin::Allocator),
    python("/site-packages/", WRAPPERS, Origin::Plumbing),
    python("/dist-packages/", WRAPPERS, Origin::Plumbing),
    file("/site-packages/", Origin::Library),
    file("/dist-packages/", Origin::Library),
    // The standard library: on Linux, on macOS, of uv and of installers on Windows.
    file("/contextlib.py", Origin::Plumbing),
    file("/functools.py", Origin::Plumbing),
    file("/runpy.py", Origin::Interpreter),
    python(
        "/threading.py",
        &["run", "_bootstrap", "_bootstrap_inner"],
        Origin::Interpreter,
    ),
    file("/importlib/", Origin::Interpreter),
    file("/concurrent/futures/", Origin::Plumbing),
    file("/multiprocessing/", Origin::Plumbing),
    file("/lib/python2.", Origin::Library),
    file("/lib/python3.", Origin::Library),
    file("/lib/python3/", Origin::Library),
    file("/lib64/python3.", Origin::Library),
    file("/cpython-3*/lib/", Origin::Library),
    file("/Programs/Python/Python3", Origin::Library),
    file("/Program Files/Python3", Origin::Library),
    file("/miniconda3/*/lib/", Origin::Library),
    file("/anaconda3/*/lib/", Origin::Library),
    file("/miniforge3/*/lib/", Origin::Library),
    // PyTorch from its source, and what it compiles.
    file("/torch/nn/", Origin::Library),
    file("/torch/optim/", Origin::Library),
    file("/torch/autograd/", Origin::Library),
    file("/torch/distributed/", Origin::Library),
    file("/torchinductor_", Origin::Library),
    file("/<eval_with_key>", Origin::Library),
    // What records.
    module("libgpushim", Origin::Recorder),
    module("libcupti", Origin::Recorder),
    module("libnvToolsExt", Origin::Recorder),
    module("libToolsInjection", Origin::Recorder),
    module("libunwind", Origin::Recorder),
    name("torch::unwind::", Origin::Recorder),
    name("torch::CapturedTraceback::", Origin::Recorder),
    name("torch::profiler::", Origin::Recorder),
    name(
        "torch::cuda::(anonymous namespace)::gather",
        Origin::Recorder,
    ),
    name("torch::cuda::_record_memory_history", Origin::Recorder),
    name("libkineto::", Origin::Recorder),
    // Allocators.
    name("c10::cuda::CUDACachingAllocator::", Origin::Allocator),
    name("c10::CachingAllocator::", Origin::Allocator),
    name("c10::CachingHostAllocator", Origin::Allocator),
    name("c10::cuda::MemPool", Origin::Allocator),
    name("DeviceCachingAllocator::", Origin::Allocator),
    name("at::cuda::CachingHostAllocator", Origin::Allocator),
    name("rmm::", Origin::Allocator),
    name("tsl::BFCAllocator::", Origin::Allocator),
    name("tensorflow::BFCAllocator::", Origin::Allocator),
    module("librmm", Origin::Allocator),
    module("libjemalloc", Origin::Allocator),
    module("libtcmalloc", Origin::Allocator),
    module("libmimalloc", Origin::Allocator),
    // Runtimes.
    module("libcu", Origin::Runtime),
    module("libnv", Origin::Runtime),
    module("libnccl", Origin::Runtime),
    module("libc.", Origin::Runtime),
    module("libc-", Origin::Runtime),
    module("libm.", Origin::Runtime),
    module("libm-", Origin::Runtime),
    module("libdl", Origin::Runtime),
    module("librt.", Origin::Runtime),
    module("libpthread", Origin::Runtime),
    module("ld-linux", Origin::Runtime),
    module("linux-vdso", Origin::Runtime),
    module("libstdc++", Origin::Runtime),
    module("libc++", Origin::Runtime),
    module("libgcc", Origin::Runtime),
    module("libgomp", Origin::Runtime),
    module("libomp", Origin::Runtime),
    module("libiomp", Origin::Runtime),
    module("libmkl", Origin::Runtime),
    module("libtbb", Origin::Runtime),
    name("std::", Origin::Runtime),
    name("core::ops::function::", Origin::Runtime),
    name("<alloc::boxed::Box<", Origin::Runtime),
    name("__libc_", Origin::Runtime),
    exact("_start", Origin::Runtime),
    exact("start_thread", Origin::Runtime),
    exact("clone", Origin::Runtime),
    exact("__clone", Origin::Runtime),
    exact("__clone3", Origin::Runtime),
    exact("execute_native_thread_routine", Origin::Runtime),
    name("__cudart", Origin::Runtime),
    name("cudart::", Origin::Runtime),
    name("cudaMalloc", Origin::Runtime),
    name("cuMem", Origin::Runtime),
    name("thrust::", Origin::Runtime),
    name("cub::", Origin::Runtime),
    name("cudarc::", Origin::Library),
    // Interpreters.
    module("python", Origin::Interpreter),
    module("libpython", Origin::Interpreter),
    module("libffi", Origin::Interpreter),
    module("_ctypes.", Origin::Interpreter),
    module("_cffi_backend", Origin::Interpreter),
    name("pybind11::", Origin::Interpreter),
    name("nanobind::", Origin::Interpreter),
    name("_Py", Origin::Interpreter),
    name("Py_", Origin::Interpreter),
    name("PyObject_", Origin::Interpreter),
    name("PyEval_", Origin::Interpreter),
    name("ffi_call", Origin::Interpreter),
    // The inside of frameworks. What autograd computes says which operator it is of.
    name("torch::autograd::generated::", Origin::Library),
    name("torch::autograd::AccumulateGrad::", Origin::Library),
    name("at::", Origin::Framework),
    name("c10::", Origin::Framework),
    name("caffe2::", Origin::Framework),
    name("torch::", Origin::Framework),
    name("THP", Origin::Framework),
    name("THCPModule_", Origin::Framework),
    name("dynamo_", Origin::Framework),
    name("xla::", Origin::Framework),
    name("tsl::", Origin::Framework),
    name("tensorflow::", Origin::Framework),
    name("stream_executor::", Origin::Framework),
    module("libtorch", Origin::Framework),
    module("libc10", Origin::Framework),
    module("libtensorflow", Origin::Framework),
    folder("-packages/torch/", Origin::Framework),
    folder("-packages/jaxlib/", Origin::Framework),
    folder("-packages/tensorflow/", Origin::Framework),
    folder("-packages/cupy", Origin::Framework),
    folder("/site-packages/", Origin::Library),
    folder("/dist-packages/", Origin::Library),
    // The system's own folders.
    folder("/lib/python3.", Origin::Library),
    folder("/usr/lib/", Origin::Library),
    folder("/usr/lib64/", Origin::Library),
    folder("/lib/x86_64-linux-gnu/", Origin::Library),
    folder("/miniconda3/*lib/lib", Origin::Library),
    folder("/anaconda3/*lib/lib", Origin::Library),
    folder("/miniforge3/*lib/lib", Origin::Library),
    folder("/usr/local/cuda", Origin::Library),
];
