# shellcheck shell=bash
# Installs the tools that building needs and this machine lacks. ./demo, ./check, scripts/{board,python} and the scripts
# in .ci source this file; after `setup`, they have `cargo` in PATH.
#
#   setup [--yes] [c++] [qemu] [servers] [python] [torch]
#       --yes: install without asking; c++: also a C++ compiler; qemu: also the tools that boot the guests of the tests
#       in qemu/; servers: also the servers of the tests, and openssl for their certificates; python: also Python with
#       its module venv; torch: also PyTorch for the system's Python, if apt has it
#
# `setup` prints each command and asks before it runs it. Without --yes and without a terminal to ask on, it ends.

RUST_NEEDED=1.95
PYTHON_NEEDED=3.11

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Asks whether to continue; with --yes the answer is yes.
agree() {
    [ "$SETUP_YES" = 1 ] && return 0
    [ -t 0 ] || fail "there is no terminal to ask on: run the command above yourself, or give --yes"
    printf '%s [y/N] ' "$1"
    read -r answer
    case $answer in y | Y | yes) return 0 ;; *) fail "not installed, so nothing was built" ;; esac
}

have() { command -v "$1" >/dev/null 2>&1; }

# Returns whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# Prints the first Python that is new enough and can make virtual environments.
python_program() {
    local program
    for program in python3 python3.{14,13,12,11}; do
        have "$program" && "$program" -c "import ensurepip, sys, venv
sys.exit(sys.version_info < (${PYTHON_NEEDED/./, }))" 2>/dev/null && { echo "$program"; return; }
    done
    return 1
}

# Returns whether the system's Python is new enough, can make virtual environments, and has PyTorch and torchvision.
system_has_torch() {
    [ -x /usr/bin/python3 ] && /usr/bin/python3 -c "import importlib.util, sys
modules = 'ensurepip', 'torch', 'torchvision', 'venv'
sys.exit(sys.version_info < (${PYTHON_NEEDED/./, }) or not all(map(importlib.util.find_spec, modules)))"
}

missing_tools() {
    have cc || have gcc || have clang || echo compiler
    [ "$SETUP_CXX" = 0 ] || have c++ || have g++ || have clang++ || echo c++
    if [ "$SETUP_QEMU" = 1 ]; then
        have qemu-system-aarch64 || echo qemu-arm
        have qemu-system-x86_64 || echo qemu-x86
        have mke2fs || [ -x /usr/sbin/mke2fs ] || echo mke2fs
        have xz || echo xz
    fi
    if [ "$SETUP_SERVERS" = 1 ]; then
        have nginx || [ -x /usr/sbin/nginx ] || echo nginx
        have openssl || echo openssl
        have redis-server || have valkey-server || echo redis
    fi
    [ "$SETUP_PYTHON" = 0 ] || python_program >/dev/null || echo python
    if [ "$SETUP_TORCH" = 1 ] && ! system_has_torch && apt-cache show python3-torchvision >/dev/null 2>&1; then
        echo torch
    fi
    have make || echo make
    have cmake || echo cmake
    # libjpeg-turbo's SIMD code for x86 is written for nasm; elsewhere it is compiled as C.
    case $(uname -m) in x86_64 | amd64) have nasm || echo nasm ;; esac
    if ! rust_is_ready && ! have rustup; then
        have curl || have wget || echo curl
        [ -e /etc/ssl/certs ] || echo certificates
    fi
}

# Prints the packages that hold these tools: MANAGER TOOL...
packages_for() {
    local manager=$1 tool
    shift
    for tool in "$@"; do
        case $tool:$manager in
            compiler:apt) echo gcc libc6-dev ;;
            compiler:apk) echo gcc musl-dev ;;
            compiler:dnf | compiler:zypper) echo gcc glibc-devel ;;
            compiler:*) echo gcc ;;
            c++:apt | c++:apk) echo g++ ;;
            c++:dnf | c++:zypper) echo gcc-c++ ;;
            c++:*) echo gcc ;;
            certificates:*) echo ca-certificates ;;
            # The guests' kernels are Debian's: the tests need apt.
            qemu-arm:apt) echo qemu-system-arm ;;
            qemu-x86:apt) echo qemu-system-x86 ;;
            mke2fs:*) echo e2fsprogs ;;
            nginx:apt) echo nginx-light ;;
            redis:apt) echo redis-server ;;
            xz:apt) echo xz-utils ;;
            python:apt) echo python3 python3-venv ;;
            torch:apt) echo python3-torch python3-torchvision python3-venv ;;
            python:dnf | python:zypper | python:apk) echo python3 ;;
            *) echo "$tool" ;;
        esac
    done
}

install_tools() {
    local manager='' update=() install=() sudo=() packages
    if have apt-get; then manager=apt update=(apt-get update) install=(apt-get install -y --no-install-recommends)
    elif have dnf; then manager=dnf install=(dnf install -y)
    elif have pacman; then manager=pacman install=(pacman -S --needed --noconfirm)
    elif have zypper; then manager=zypper install=(zypper --non-interactive install)
    elif have apk; then manager=apk install=(apk add)
    elif have brew; then manager=brew install=(brew install)
    else fail "these tools are missing, and there is no known package manager to install them: $*"
    fi
    mapfile -t packages < <(packages_for "$manager" "$@" | tr ' ' '\n')
    if [ "$manager" != brew ] && [ "$(id -u)" != 0 ]; then
        have sudo || fail "run as root: ${install[*]} ${packages[*]}"
        sudo=(sudo)
    fi
    say "Missing: $*. These commands install them:"
    [ ${#update[@]} = 0 ] || printf '   %s\n' "${sudo[*]} ${update[*]}"
    printf '   %s\n' "${sudo[*]} ${install[*]} ${packages[*]}"
    agree "Install them?"
    if [ ${#update[@]} != 0 ]; then
        "${sudo[@]}" "${update[@]}" || fail "${update[*]} failed"
    fi
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" "${install[@]}" "${packages[@]}" || fail "${install[*]} failed"
}

rust_is_ready() { have cargo && at_least "$(cargo --version 2>/dev/null | cut -d ' ' -f 2)" "$RUST_NEEDED"; }

fetch() { if have curl; then curl -fsSL --retry 3 -o "$2" "$1"; else wget -q -O "$2" "$1"; fi; }

# Installs rustup from the Rust project, and verifies its checksum.
install_rustup() {
    local libc=gnu folder triple url
    if [ -e /etc/alpine-release ]; then libc=musl; fi
    triple=$(uname -m)-unknown-linux-$libc
    url=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}/dist/$triple/rustup-init
    say "Rust $RUST_NEEDED or newer is missing. rustup installs it for this user, in ~/.rustup and ~/.cargo, from"
    printf '   %s\n' "$url"
    agree "Install Rust?"
    folder=$(mktemp -d)
    fetch "$url" "$folder/rustup-init" || fail "cannot fetch $url"
    fetch "$url.sha256" "$folder/sum" || fail "cannot fetch $url.sha256"
    [ "$(cut -d ' ' -f 1 "$folder/sum")" = "$(sha256sum "$folder/rustup-init" | cut -d ' ' -f 1)" ] ||
        fail "$url is damaged: its checksum does not match"
    chmod +x "$folder/rustup-init"
    "$folder/rustup-init" -y --no-modify-path --profile minimal --component clippy --component rustfmt ||
        fail "rustup failed"
    rm -r "$folder"
}

install_rust() {
    if have rustup; then
        say "Rust $RUST_NEEDED or newer is missing. This command installs it:"
        printf '   rustup toolchain install stable --profile minimal --component clippy --component rustfmt\n'
        agree "Install it?"
        rustup toolchain install stable --profile minimal --component clippy --component rustfmt || fail "rustup failed"
        export RUSTUP_TOOLCHAIN=stable
    else
        install_rustup
        export RUSTUP_TOOLCHAIN=stable
    fi
    hash -r
    rust_is_ready || fail "cargo is still older than $RUST_NEEDED: $(cargo --version 2>&1)"
}

# Prints cargo's target folder.
target_dir() { cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'; }

setup() {
    local tools word
    SETUP_YES=0 SETUP_CXX=0 SETUP_QEMU=0 SETUP_PYTHON=0 SETUP_TORCH=0 SETUP_SERVERS=0
    for word in "$@"; do
        case $word in
            --yes) SETUP_YES=1 ;; c++) SETUP_CXX=1 ;; qemu) SETUP_QEMU=1 ;; python) SETUP_PYTHON=1 ;;
            torch) SETUP_TORCH=1 ;; servers) SETUP_SERVERS=1 ;;
        esac
    done
    [ "$(uname -s)" = Linux ] || fail "DDLP runs on Linux; on another system, use a virtual machine or a container"
    # rustup's folder may be missing in the PATH of this shell.
    case ":$PATH:" in *":${CARGO_HOME:-$HOME/.cargo}/bin:"*) ;; *) PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin ;; esac
    mapfile -t tools < <(missing_tools)
    if [ ${#tools[@]} != 0 ]; then install_tools "${tools[@]}"; fi
    [ "$SETUP_PYTHON" = 0 ] || python_program >/dev/null ||
        fail "the package manager has no Python $PYTHON_NEEDED with venv: install one, and put it into the PATH"
    rust_is_ready || install_rust
}
