//! Facts about the process that are written when its trace is opened.

use std::ffi::{CStr, c_char};

use gpushim_trace::Writer;
use gpushim_unwind::each_object;

use crate::base::{settings, thread};
use crate::cuda::functions::real;
use crate::cuda::types::SUCCESS;
use crate::process::takeover;

/// Writes the driver, the devices, the runtimes, the hooks, the configuration in force and the
/// decisions of takeover. `hooks` writes the facts about the hooks.
pub fn write(writer: &Writer, hooks: fn(&Writer)) {
    let mut version = 0;
    // SAFETY: `version` is ours to write; so is everything below.
    if thread::call(|| unsafe { real::cuDriverGetVersion(&mut version) }) == SUCCESS {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        writer.fact("driver.cuda", &format!("{major}.{minor}"));
    }
    thread::call(|| devices(writer));
    for library in libraries() {
        let name = library.rsplit('/').next().unwrap_or_default();
        if name.starts_with("libcuda.so") {
            writer.fact("driver", &library);
        } else if name.starts_with("libcudart") {
            writer.fact("cudart", &library);
        }
    }
    writer.fact("library", gpushim_version::line());
    launcher(writer);
    hooks(writer);
    let resolved = settings::resolved();
    for setting in &resolved.settings {
        writer.fact(setting.variable.name, &setting.value);
    }
    for problem in &resolved.problems {
        writer.fact("problem", &problem.to_string());
    }
    takeover::write_facts(writer);
}

/// Writes the launcher's facts about the job: its identity and its number of ranks.
fn launcher(writer: &Writer) {
    let lookup = |name: &str| std::env::var_os(name);
    if let Some(world) = gpushim_config::world(lookup) {
        writer.fact("world", &world.to_string());
    }
    if let Some(job) = gpushim_config::job(lookup) {
        writer.fact("job", &job);
    }
}

fn devices(writer: &Writer) {
    let mut count = 0;
    // SAFETY: `count` is ours to write.
    if unsafe { real::cuDeviceGetCount(&mut count) } != SUCCESS {
        return;
    }
    for ordinal in 0..count {
        let mut device = 0;
        let mut name = [0 as c_char; 128];
        let mut bytes = 0;
        // SAFETY: all three are ours to write, and the length is the array's less its final zero.
        let known = unsafe {
            real::cuDeviceGet(&mut device, ordinal) == SUCCESS
                && real::cuDeviceGetName(name.as_mut_ptr(), 127, device) == SUCCESS
                && real::cuDeviceTotalMem_v2(&mut bytes, device) == SUCCESS
        };
        if known {
            // SAFETY: the driver wrote a C string, and the last byte is zero in any case.
            let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
            writer.fact(&format!("gpu.{ordinal}"), &format!("{name}, {bytes} bytes"));
        }
    }
}

/// Returns the paths of all libraries in the process.
fn libraries() -> Vec<String> {
    let mut list = Vec::new();
    each_object(|info| {
        if !info.dlpi_name.is_null() {
            // SAFETY: the name is a C string while the object is shown.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            list.push(name.to_string_lossy().into_owned());
        }
        false
    });
    list
}
