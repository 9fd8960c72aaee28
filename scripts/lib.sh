# Shared by the scripts here; sourced, with the repository's root as the current folder.

# need NAME…: ends the script with one clear line for each program that is missing.
need() {
    local missing=0 name
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 && continue
        missing=1
        case $name in
            cargo) echo "gpushim: cargo is missing: install Rust ($(rust_version) or newer), see https://rustup.rs" >&2 ;;
            gcc) echo "gpushim: gcc is missing: install a C compiler (Debian, Ubuntu: apt install gcc libc6-dev)" >&2 ;;
            python3) echo "gpushim: python3 is missing: install Python 3.9 or newer (Debian, Ubuntu: apt install python3 python3-venv)" >&2 ;;
            *) echo "gpushim: $name is missing" >&2 ;;
        esac
    done
    [ "$missing" = 0 ] || exit 2
}

# The oldest Rust that Cargo.toml allows.
rust_version() {
    sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1
}

# The folder that cargo builds into, absolute.
target_dir() {
    local folder=${CARGO_TARGET_DIR:-target}
    case $folder in /*) echo "$folder" ;; *) echo "$PWD/$folder" ;; esac
}

# lay_out_demo FOLDER LIBCUDA: what `gpushim demo` needs beside the library: the stand-in driver and the sample program.
lay_out_demo() {
    mkdir -p "$1/site-packages"
    cp tests/programs/situations.py "$1/"
    cp tests/programs/site-packages/tinytorch.py "$1/site-packages/"
    # By rename, so that a process that is just loading finds the old library or the new one.
    cp "$2" "$1/.libcuda.so.$$"
    mv "$1/.libcuda.so.$$" "$1/libcuda.so.1"
}

# quiet: cargo's option, unless somebody sees its progress on a terminal.
quiet() {
    [ -t 2 ] || echo --quiet
}

# newest_glibc FILE: the newest version of glibc that a program or library needs.
newest_glibc() {
    readelf -VW "$1" | sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -1
}
