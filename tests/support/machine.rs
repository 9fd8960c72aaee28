//! The machine that the programs under test are for: this one, or 64-bit Arm in an emulator.
//!
//! The tests themselves and the command always run on this machine.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable that names the machine.
const VARIABLE: &str = "GPUSHIM_TEST_MACHINE";
const ARM: &str = "aarch64-unknown-linux-gnu";
/// Folder of that machine's libraries in Debian's cross compiler.
const ARM_ROOT: &str = "/usr/aarch64-linux-gnu";

/// A machine that programs are built for and run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The machine that runs the tests.
    Own,
    /// 64-bit Arm, by Debian's cross compiler and qemu-user.
    Arm,
}

impl Machine {
    /// The one that `GPUSHIM_TEST_MACHINE` names; this one if it is not set.
    pub fn asked_for() -> Result<Machine, String> {
        match std::env::var(VARIABLE).as_deref() {
            Err(_) => Ok(Machine::Own),
            Ok("aarch64") => Ok(Machine::Arm),
            Ok(other) => Err(format!("{VARIABLE} is aarch64 or not set, and not {other}")),
        }
    }

    /// cargo's name of another machine.
    pub fn target(self) -> Option<&'static str> {
        (self == Machine::Arm).then_some(ARM)
    }

    /// Option of cargo that builds for the machine, with a space before.
    pub fn cargo_option(self) -> String {
        self.target()
            .map(|target| format!(" --target {target}"))
            .unwrap_or_default()
    }

    /// cargo's folder for this machine, from the path of a test: `target/PROFILE/deps/TEST`.
    pub fn built(self, test: &Path) -> Option<PathBuf> {
        let own = test.ancestors().nth(2)?;
        match self.target() {
            None => Some(own.to_path_buf()),
            Some(target) => Some(own.parent()?.join(target).join(own.file_name()?)),
        }
    }

    /// Name of the C compiler's program.
    pub fn gcc(self) -> &'static str {
        match self {
            Machine::Own => "gcc",
            Machine::Arm => "aarch64-linux-gnu-gcc",
        }
    }

    /// A command for a program, with these variables of the dynamic linker and no others.
    ///
    /// An emulator itself must not get them.
    pub fn command(self, program: &Path, variables: &[(&str, OsString)]) -> Command {
        let mut command = match self {
            Machine::Own => Command::new(program),
            Machine::Arm => Command::new("qemu-aarch64"),
        };
        let here = std::env::vars_os().map(|(name, _)| name);
        here.filter(|name| name.to_string_lossy().starts_with("LD_"))
            .for_each(|name| {
                command.env_remove(name);
            });
        if self == Machine::Own {
            command.envs(variables.iter().map(|(name, value)| (name, value)));
            return command;
        }
        command.args(["-L", ARM_ROOT]);
        for (name, value) in variables {
            let mut set = OsString::from(name);
            set.push("=");
            set.push(value);
            command.args([OsStr::new("-E"), &set]);
        }
        command.arg(program);
        command
    }
}
