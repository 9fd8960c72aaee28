//! Browser of the user's desktop.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time in which a program that cannot open a page says so by its exit code.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens a page in the browser. False if there is no browser, or no screen for it.
pub fn open(page: &Path) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| set(name).is_some());
    let desktop = has_screen.then(|| "xdg-open".into());
    set("BROWSER").into_iter().chain(desktop).any(|program| {
        let mut command = Command::new(program);
        let command = command.arg(page).stdin(Stdio::null());
        let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            return false;
        };
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => return false,
            }
        }
        // It shows the page, and goes on when this command has ended.
        true
    })
}
