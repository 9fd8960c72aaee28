//! Workspaces that a framework keeps for a library, as its own tensors.

use super::{Frame, calls};
use crate::symbols::Kind;

/// Returns true if a tensor of PyTorch is the workspace of a library.
pub fn is_workspace(stack: &[Frame]) -> bool {
    const MAKERS: [&str; 4] = [
        "BlasLtWorkspace",
        "getNewWorkspace",
        "getCurrentCUDABlasHandle",
        "getCurrentCUDASolverDnHandle",
    ];
    let mut native = calls(stack).filter(|symbol| symbol.kind == Kind::Native);
    native.any(|symbol| MAKERS.iter().any(|maker| symbol.function.contains(maker)))
}
