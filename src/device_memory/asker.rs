//! Determines the code that allocated memory from the stack: a library, a framework, or the user's
//! own code.

use crate::recording::{Frame, calls};
use crate::symbols::{Kind, Origin, Symbol, base};

/// Code that allocated memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asker {
    /// Caching allocator of a framework, by the framework's name.
    Framework(&'static str),
    /// Library of CUDA, by its index in [`LIBRARIES`].
    Library(usize),
    /// Other code, by the name of its file: an extension, the program itself, a function of Python.
    Code(String),
    /// Unknown code, as no stack was recorded.
    NotRecorded,
}

/// A library that allocates device memory for itself.
pub struct Library {
    /// Prefix of its file name.
    file: &'static str,
    /// Prefix of its functions' names, for a library that is linked into another.
    function: &'static str,
    /// Name of the library for people.
    pub name: &'static str,
    /// Purpose of its device memory.
    pub what: &'static str,
}

const fn library(
    file: &'static str,
    function: &'static str,
    name: &'static str,
    what: &'static str,
) -> Library {
    Library {
        file,
        function,
        name,
        what,
    }
}

/// Index of NCCL in [`LIBRARIES`].
pub const NCCL: usize = 0;

/// Known libraries. The first one that matches a function is its library.
pub const LIBRARIES: &[Library] = &[
    library("libnccl", "nccl", "NCCL", "communicators"),
    library("libcublas", "cublas", "cuBLAS", "workspaces"),
    library("libcudnn", "cudnn", "cuDNN", "handles and workspaces"),
    library("libcufft", "cufft", "cuFFT", "plans"),
    library("libcusparse", "cusparse", "cuSPARSE", "handles and buffers"),
    library("libcusolver", "cusolver", "cuSOLVER", "handles and buffers"),
    library("libcurand", "curand", "cuRAND", "generators"),
    library("libcutensor", "cutensor", "cuTENSOR", "handles and plans"),
    library("libcudss", "cudss", "cuDSS", "handles and buffers"),
    library("libnvshmem", "nvshmem", "NVSHMEM", "symmetric heap"),
    library(
        "libnvinfer",
        "nvinfer1::",
        "TensorRT",
        "engines and contexts",
    ),
    library("libnvjpeg", "nvjpeg", "nvJPEG", "handles and buffers"),
    library("libnpp", "npp", "NPP", "buffers"),
];

impl Library {
    fn is_of(&self, symbol: &Symbol) -> bool {
        let file = symbol.module.as_deref().map_or("", base);
        let is_named = || symbol.kind == Kind::Native && symbol.function.starts_with(self.function);
        file.starts_with(self.file) || is_named()
    }
}

/// Frameworks with an allocator of their own, and marks in the paths or functions of their code.
const FRAMEWORKS: [(&str, &[&str]); 5] = [
    (
        "PyTorch",
        &[
            "c10::",
            "at::",
            "torch::",
            "DeviceCachingAllocator",
            "libc10",
            "libtorch",
            "-packages/torch/",
        ],
    ),
    (
        "JAX",
        &["tsl::", "xla::", "stream_executor::", "-packages/jaxlib/"],
    ),
    (
        "TensorFlow",
        &["tensorflow::", "libtensorflow", "-packages/tensorflow/"],
    ),
    ("CuPy", &["-packages/cupy"]),
    ("RMM", &["rmm::", "librmm", "/rmm/"]),
];

/// Returns the framework of a function.
fn framework(symbol: &Symbol) -> Option<&'static str> {
    let places = [symbol.module.as_deref(), symbol.file.as_deref()];
    let is_of = |mark: &&&str| match mark.contains('/') {
        true => places.iter().flatten().any(|place| place.contains(**mark)),
        false => {
            let file = symbol.module.as_deref().map_or("", base);
            symbol.function.starts_with(**mark) || file.starts_with(**mark)
        }
    };
    let mut all = FRAMEWORKS.iter();
    all.find(|(_, marks)| marks.iter().any(|mark| is_of(&mark)))
        .map(|(name, _)| *name)
}

/// True for code of PyTorch that belongs to its allocator.
fn is_allocator(symbol: &Symbol) -> bool {
    let file = symbol.module.as_deref().map_or("", base);
    symbol.origin() == Origin::Allocator || file.starts_with("libc10_cuda")
}

impl Asker {
    /// Returns the innermost code of a stack that is no runtime and no interpreter.
    pub fn of(stack: &[Frame]) -> Asker {
        // Framework of an unnamed function. The function may belong to a library that is linked
        // into the framework.
        let mut within = None;
        let mut python = None;
        for symbol in calls(stack) {
            if symbol.origin() == Origin::Recorder {
                continue;
            }
            if let Some(number) = LIBRARIES.iter().position(|one| one.is_of(symbol)) {
                return Asker::Library(number);
            }
            if is_allocator(symbol) {
                return Asker::Framework(framework(symbol).unwrap_or("PyTorch"));
            }
            let file = || symbol.module.as_deref().or(symbol.file.as_deref());
            match (symbol.origin(), symbol.kind) {
                (Origin::Runtime | Origin::Interpreter | Origin::Plumbing, _) => {}
                (Origin::Framework, Kind::Unknown) => within = within.or(framework(symbol)),
                (Origin::Framework, _) => {
                    return framework(symbol).map_or(Asker::NotRecorded, Asker::Framework);
                }
                (_, Kind::Python) => python = python.or_else(|| file().map(base)),
                _ if python.is_some() || within.is_some() => {}
                _ => {
                    if let Some(file) = file() {
                        return Asker::Code(base(file).to_string());
                    }
                }
            }
        }
        match (within, python) {
            (Some(framework), _) => Asker::Framework(framework),
            (None, Some(file)) => Asker::Code(file.to_string()),
            (None, None) => Asker::NotRecorded,
        }
    }
}

/// True if a framework passed on the request for one array instead of filling its cache.
pub fn is_passed_on(stack: &[Frame]) -> bool {
    calls(stack).any(|symbol| symbol.function.contains("CudaMallocAsync"))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::recording::is_workspace;

    fn call(kind: Kind, function: &str, place: &str) -> Frame {
        let is_python = kind == Kind::Python;
        let place = Some(place.to_string());
        Frame::Call(Rc::new([Symbol {
            function: function.to_string(),
            file: place.clone().filter(|_| is_python),
            line: None,
            module: place.filter(|_| !is_python),
            inlined: false,
            kind,
            known: Default::default(),
        }]))
    }

    fn native(function: &str, file: &str) -> Frame {
        call(Kind::Native, function, &format!("/opt/lib/{file}"))
    }

    fn unknown(file: &str) -> Frame {
        call(
            Kind::Unknown,
            &format!("{file}+0x12"),
            &format!("/opt/lib/{file}"),
        )
    }

    fn torch(function: &str) -> Frame {
        native(function, "libtorch_cuda.so")
    }

    #[test]
    fn the_innermost_code_that_is_no_runtime() {
        let runtime = || native("cudaMalloc", "libcudart.so.13");
        let main = || call(Kind::Python, "main", "/home/me/train.py");
        let named = |stack: Vec<Frame>| match Asker::of(&stack) {
            Asker::Framework(name) => name.to_string(),
            Asker::Library(number) => LIBRARIES[number].name.to_string(),
            Asker::Code(file) => file,
            Asker::NotRecorded => "?".to_string(),
        };
        for (stack, owner) in [
            (
                vec![
                    runtime(),
                    unknown("libnccl.so.2"),
                    native("start_thread", "libc.so.6"),
                ],
                "NCCL",
            ),
            (
                vec![
                    runtime(),
                    unknown("libcublasLt.so.13"),
                    torch("at::addmm"),
                    main(),
                ],
                "cuBLAS",
            ),
            // One library calls another.
            (
                vec![unknown("libcublas.so.13"), unknown("libcudnn_ops.so.9")],
                "cuBLAS",
            ),
            // A library that is linked into a framework is recognised by its function.
            (
                vec![
                    unknown("libtorch_cuda.so"),
                    torch("ncclCommInitRank"),
                    torch("c10d::init()"),
                ],
                "NCCL",
            ),
            (
                vec![
                    runtime(),
                    unknown("libc10_cuda.so"),
                    torch("at::empty"),
                    main(),
                ],
                "PyTorch",
            ),
            (
                vec![
                    torch("c10::cuda::CUDACachingAllocator::malloc(int)"),
                    main(),
                ],
                "PyTorch",
            ),
            (
                vec![runtime(), torch("at::native::own(int)"), main()],
                "PyTorch",
            ),
            (vec![unknown("libtorch_cuda.so"), main()], "PyTorch"),
            (
                vec![native("tsl::BFCAllocator::Extend()", "xla_extension.so")],
                "JAX",
            ),
            (
                vec![
                    runtime(),
                    native("grow", "libmine.so"),
                    native("ffi_call", "libffi.so.8"),
                    main(),
                ],
                "libmine.so",
            ),
            (
                vec![runtime(), native("ffi_call", "libffi.so.8"), main()],
                "train.py",
            ),
            (vec![native("solve", "solver")], "solver"),
            (vec![runtime()], "?"),
            (vec![], "?"),
        ] {
            assert_eq!(named(stack.clone()), owner, "{stack:?}");
        }
    }

    #[test]
    fn workspaces_are_tensors_of_their_makers() {
        let empty = || torch("at::detail::empty_cuda(long)");
        let maker = torch("at::cuda::getCUDABlasLtWorkspace()");
        assert!(is_workspace(&[empty(), maker]));
        assert!(!is_workspace(&[empty(), torch("at::addmm")]));
    }
}
