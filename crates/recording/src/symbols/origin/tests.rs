use super::*;

/// Makes a function with its file, if it is Python, or its module.
fn symbol(kind: Kind, function: &str, place: &str) -> Symbol {
    let place = Some(place.to_string()).filter(|place| !place.is_empty());
    let is_python = kind == Kind::Python;
    Symbol {
        function: function.to_string(),
        file: place.clone().filter(|_| is_python),
        line: None,
        module: place.filter(|_| !is_python),
        inlined: false,
        kind,
        known: Default::default(),
    }
}

/// Makes a function that fits a pattern.
fn example(of: Of) -> Symbol {
    let in_path = |part: &str| {
        let end = if part.ends_with('/') || !part.contains('.') {
            "x"
        } else {
            ""
        };
        format!("/home/me{}{end}", part.replace('*', "12"))
    };
    let packages = "/opt/lib/python3.12/site-packages";
    match of {
        Of::File(part) => symbol(Kind::Python, "f", &in_path(part)),
        Of::Python(part, names) => {
            symbol(Kind::Python, &format!("Class.{}", names[0]), &in_path(part))
        }
        Of::Module(start) => symbol(Kind::Unknown, "x", &format!("{packages}/{start}.so.1")),
        Of::Folder(part) => symbol(
            Kind::Unknown,
            "x",
            &format!("/opt{}x/hello.so", part.replace('*', "")),
        ),
        Of::Name(start) => symbol(
            Kind::Native,
            &format!("void {start}x<int>(at::Tensor const&)"),
            "",
        ),
        Of::Exact(name) => symbol(Kind::Native, name, ""),
    }
}

#[test]
fn each_entry_decides_about_its_own() {
    for (number, (of, origin)) in TABLE.iter().enumerate() {
        let symbol = example(*of);
        let told = Told::of(&symbol);
        let found = TABLE.iter().position(|(of, _)| of.fits(&told));
        assert_eq!(found, Some(number), "{of:?} of {symbol:?}");
        assert_eq!(symbol.origin(), *origin);
    }
}

/// Functions as they are in recordings.
#[test]
fn what_recordings_have() {
    use Kind::{Jit, Native, Python, Unknown};
    use Origin::{Allocator, Framework, Interpreter, Library, Own, Plumbing, Recorder, Runtime};
    let packages = "/home/me/.venv/lib/python3.12/site-packages";
    let of = |kind, function, place: &str| {
        symbol(kind, function, &place.replace("PACKAGES", packages)).origin()
    };
    for (function, file, expected) in [
        ("Leaky.forward", "/home/me/train.py", Own),
        ("<module>", "train.py", Own),
        ("<lambda>", "<stdin>", Own),
        ("cell", "/tmp/ipykernel_71/2118.py", Own),
        ("wrapper", "/home/me/tools.py", Own),
        ("copy", r"C:\research\client.py", Own),
        (
            "forward",
            "/mnt/select_n/lib/transformers/modeling_llama.py",
            Own,
        ),
        ("run", "/home/me/python3-course/lib/run.py", Own),
        (
            "Linear.forward",
            "PACKAGES/torch/nn/modules/linear.py",
            Library,
        ),
        ("_apply", "PACKAGES/torch/nn/modules/module.py", Library),
        (
            "forward",
            r"C:\me\.venv\lib\site-packages\transformers\models\opt\modeling_opt.py",
            Library,
        ),
        (
            "deepcopy",
            r"C:\me\uv\python\cpython-3.10.19-windows-x86_64-none\lib\copy.py",
            Library,
        ),
        ("load", "/usr/lib/python3.12/pickle.py", Library),
        ("call", "/tmp/torchinductor_me/bc/cbck.py", Library),
        (
            "Module._call_impl",
            "PACKAGES/torch/nn/modules/module.py",
            Plumbing,
        ),
        (
            "_wrapped_call_impl",
            "/src/pytorch/torch/nn/modules/module.py",
            Plumbing,
        ),
        ("__call__", "PACKAGES/torch/_ops.py", Plumbing),
        ("_fn", "PACKAGES/torch/_dynamo/eval_frame.py", Plumbing),
        (
            "decorate_context",
            "PACKAGES/torch/utils/_contextlib.py",
            Plumbing,
        ),
        (
            "Optimizer.profile_hook_step.<locals>.wrapper",
            "PACKAGES/torch/optim/optimizer.py",
            Plumbing,
        ),
        ("inner", "/usr/lib/python3.12/contextlib.py", Plumbing),
        ("wrapper", "/usr/lib/python3.12/functools.py", Plumbing),
        (
            "_run_code",
            "/opt/miniconda3/envs/a/lib/python3.10/runpy.py",
            Interpreter,
        ),
        (
            "_bootstrap_inner",
            "/usr/lib/python3.11/threading.py",
            Interpreter,
        ),
        (
            "_call_with_frames_removed",
            "<frozen importlib._bootstrap>",
            Interpreter,
        ),
    ] {
        assert_eq!(of(Python, function, file), expected, "{function} {file}");
    }
    for (function, module, expected) in [
        ("Solver::step()", "/opt/solver/bin/solver", Own),
        (
            "custom_softmax(at::Tensor)",
            "/home/me/ext/build/softmax.so",
            Own,
        ),
        ("main", "/home/me/a.out", Own),
        ("mine::fill(at::Tensor)", "", Library),
        ("h5_read", "PACKAGES/h5py/defs.so", Library),
        (
            "g_main_loop_run",
            "/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0",
            Library,
        ),
        (
            "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)",
            "",
            Library,
        ),
        (
            "at::native::empty_cuda(c10::ArrayRef<long>)",
            "PACKAGES/torch/lib/libtorch_cuda.so",
            Framework,
        ),
        (
            "at::Tensor at::detail::_empty_generic<c10::ArrayRef<long> >(long)",
            "",
            Framework,
        ),
        (
            "at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA__mm(at::Tensor const&)",
            "",
            Framework,
        ),
        (
            "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::F<int (int)>, int>::call(int)",
            "",
            Framework,
        ),
        ("THPVariable_clear(THPVariable*)", "", Framework),
        (
            "_object* torch::autograd::TypeError_to_NotImplemented_<&f>(_object*)",
            "",
            Framework,
        ),
        ("_PyEval_EvalFrameDefault", "", Interpreter),
        ("slot_tp_call", "", Interpreter),
        ("method_vectorcall_NOARGS.llvm.757", "", Interpreter),
        (
            "_PyEval_EvalFrameDefault",
            "/usr/bin/python3.12",
            Interpreter,
        ),
        (
            "cfunction_call",
            "/usr/lib/libpython3.12.so.1.0",
            Interpreter,
        ),
        (
            "ffi_call_unix64",
            "/usr/lib/x86_64-linux-gnu/libffi.so.8",
            Interpreter,
        ),
        (
            "pybind11::cpp_function::dispatcher(_object*, _object*, _object*)",
            "",
            Interpreter,
        ),
        (
            "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(long)",
            "",
            Allocator,
        ),
        (
            "DeviceCachingAllocator::alloc_found_block(AllocParams const&)",
            "",
            Allocator,
        ),
        (
            "std::_Sp_counted_deleter<c10::Storage*>::_M_dispose()",
            "",
            Runtime,
        ),
        ("cudaMalloc", "/home/me/a.out", Runtime),
        ("__libc_start_call_main", "", Runtime),
        ("cuMemAlloc_v2", "/usr/lib/libcuda.so.1", Runtime),
        ("torch::unwind::unwind()", "", Recorder),
        (
            "torch::CapturedTraceback::gather(bool, bool, bool)",
            "",
            Recorder,
        ),
        ("gpushim::hooks::cuMemAlloc", "/opt/libgpushim.so", Recorder),
    ] {
        assert_eq!(
            of(Native, function, module),
            expected,
            "{function} {module}"
        );
    }
    assert_eq!(
        of(
            Unknown,
            "libcudart.so.13+0x41b5e",
            "/usr/lib/libcudart.so.13"
        ),
        Runtime
    );
    assert_eq!(
        of(Unknown, "solver+0x1234", "/opt/solver/bin/solver"),
        Library
    );
    assert_eq!(of(Unknown, "0x7f00", ""), Runtime);
    assert_eq!(of(Jit, "kernel", ""), Own);
    // An empty stack trace of hostile input.
    for kind in [Native, Python, Unknown, Jit] {
        let _ = of(kind, "", "");
    }
}

#[test]
fn the_line_is_below_libraries() {
    use Origin::*;
    let all = [
        Own,
        Library,
        Framework,
        Plumbing,
        Interpreter,
        Allocator,
        Runtime,
        Recorder,
    ];
    assert_eq!(
        all.map(Origin::is_below),
        [false, false, true, true, true, true, true, true]
    );
    assert!(all.is_sorted());
}
