//! Entries in assembly of exported functions that need the address of their caller.

/// Gives the register of 64-bit Arm for the argument that x86-64 has in this one.
#[cfg(target_arch = "aarch64")]
macro_rules! register_of_arm {
    ("rsi") => {
        "x1"
    };
    ("rdx") => {
        "x2"
    };
    ("rcx") => {
        "x3"
    };
    ("r8") => {
        "x4"
    };
    ("r9") => {
        "x5"
    };
}

/// Defines an exported function that jumps to another one. The named register gets the caller's
/// return address as one more argument. The register of 64-bit Arm is also named if x86-64 alone
/// passes a structure among the arguments in memory.
macro_rules! door {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) => $inner:ident, $x86:tt) => {
        $crate::hooks::door::door! {
            $(#[$doc])*
            fn $name($($arg: $type),*) => $inner, $x86 | $crate::hooks::door::register_of_arm!($x86)
        }
    };
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) => $inner:ident, $x86:tt | $($arm:tt)+) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The arguments of the interposed function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $($arm)+, ", x30"),
                "b {inner}",
                ".cfi_endproc",
                inner = sym $inner,
            );
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $x86, ", [rsp]"),
                "jmp {inner}",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}

/// Gives the name of a function as a C string.
macro_rules! c_name {
    ($name:ident) => {
        const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        }
    };
}

#[cfg(target_arch = "aarch64")]
pub(crate) use register_of_arm;
pub(crate) use {c_name, door};
