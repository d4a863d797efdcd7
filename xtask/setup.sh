#!/bin/sh
# Installs what is missing, by apt, then runs the rest of its command line.
#
#   sh xtask/setup.sh run|all|vm [COMMAND...]
#
# `run` is what building and the demo need; `all` adds what tests and benchmarks
# need, `vm` what guests need. Nothing is asked of apt when nothing is missing. Exit 3: the system
# lacks something that could not be installed.
set -u

# The oldest Rust that the workspace builds with (rust-version in Cargo.toml).
RUST_WANTED=1.85

say() { printf 'homenode: %s\n' "$*" >&2; }
lack() { say "$*"; exit 3; }
have() { command -v "$1" >/dev/null 2>&1; }
have_header() { printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1; }
# As crates/bpf/build.rs looks for it; Debian has a number in the name of some.
have_clang() {
    for name in "${CLANG:-clang}" clang-21 clang-20 clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
        if have "$name"; then return 0; fi
        if [ -n "${CLANG:-}" ]; then return 1; fi
    done
    return 1
}

level=${1:-}
case $level in
run | all | vm) shift ;;
*) say "usage: sh xtask/setup.sh run|all|vm [COMMAND...]"; exit 2 ;;
esac

# cargo and pip keep their downloads below HOME, so it has to exist and take files.
if [ -z "${HOME:-}" ]; then HOME=$(getent passwd "$(id -u)" | cut -d: -f6); fi
if ! mkdir -p "$HOME" 2>/dev/null || ! [ -w "$HOME" ]; then
    HOME=$PWD/target/home
    mkdir -p "$HOME" || lack "no folder for downloads: neither HOME nor $HOME can be written; set HOME to one that can"
    say "HOME can't be written: downloads go to target/home"
fi
export HOME

# version_fits 1.96.0: is this at least RUST_WANTED?
version_fits() {
    printf '%s\n' "$1" | awk -F. -v want="$RUST_WANTED" '
        { split(want, w, "."); exit !($1 + 0 > w[1] + 0 || ($1 + 0 == w[1] + 0 && $2 + 0 >= w[2] + 0)) }'
}

# Puts a folder with a fitting cargo and rustc first on PATH. A rustup that has
# no toolchain has a cargo that fails, and so doesn't count.
find_rust() {
    for dir in "" "${CARGO_HOME:-$HOME/.cargo}/bin" "$HOME/.cargo/bin" /usr/bin; do
        path=${dir:+$dir:}$PATH
        # Without this, a folder that lacks one of the two would borrow it from elsewhere.
        if [ -n "$dir" ] && ! { [ -x "$dir/cargo" ] && [ -x "$dir/rustc" ]; }; then continue; fi
        cargo=$(PATH=$path cargo --version 2>/dev/null | awk '{ print $2 }')
        rustc=$(PATH=$path rustc --version 2>/dev/null | awk '{ print $2 }')
        if [ -n "$cargo" ] && [ -n "$rustc" ] && version_fits "$cargo" && version_fits "$rustc"; then
            PATH=$path
            export PATH
            return 0
        fi
    done
    return 1
}

# candidate PACKAGE: the version apt would install.
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" { print $2 }'; }

# Debian 12 has a Rust for browsers' sake beside its own old one; later Debians
# have only one. Take the plain one if it is new enough.
rust_packages() {
    if version_fits "$(candidate cargo)"; then
        echo "cargo rustc rustfmt rust-clippy"
    elif version_fits "$(candidate cargo-web)"; then
        echo "cargo-web rustc-web rustfmt-web rust-web-clippy"
    else
        return 1
    fi
}

need_rust=no
find_rust || need_rust=yes

packages=
if ! have cc; then packages="$packages gcc libc6-dev"; fi
if ! have objcopy; then packages="$packages binutils"; fi
if ! [ -e /etc/ssl/certs/ca-certificates.crt ]; then packages="$packages ca-certificates"; fi
if ! have "qemu-$(uname -m)"; then packages="$packages qemu-user"; fi
if ! have sqlite3; then packages="$packages sqlite3"; fi
# For libbpf and the BPF programs of crates/bpf.
if ! have make; then packages="$packages make"; fi
if ! have pkg-config; then packages="$packages pkg-config"; fi
if ! have_clang; then packages="$packages clang"; fi
if ! have_header libelf.h; then packages="$packages libelf-dev"; fi
if ! have_header zlib.h; then packages="$packages zlib1g-dev"; fi
if [ "$level" = all ]; then
    if ! have python3; then packages="$packages python3"; fi
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then packages="$packages python3-venv"; fi
    if ! have valgrind; then packages="$packages valgrind"; fi
    # A program of `homenode truth replay`, which goes on without: no test is held up for it.
    if [ $# = 0 ] && ! have pigz; then packages="$packages pigz"; fi
fi
if [ "$level" = vm ]; then
    if ! have qemu-system-x86_64; then packages="$packages qemu-system-x86"; fi
    if ! have busybox; then packages="$packages busybox-static"; fi
fi

if [ -n "$packages" ] || [ $need_rust = yes ]; then
    wanted="$packages"
    if [ $need_rust = yes ]; then wanted="$wanted Rust $RUST_WANTED or newer"; fi
    have apt-get || lack "missing:$wanted. There is no apt-get here: please install them by hand"
    as_root=
    if [ "$(id -u)" != 0 ]; then
        have sudo || lack "missing:$wanted. Installing needs root: run this as root, or install sudo"
        as_root=sudo
    fi
    say "installing by apt:$wanted"
    # apt's own words matter only when it fails.
    log=$(mktemp) || lack "no folder for temporary files"
    trap 'rm -f "$log"' EXIT
    apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null; }
    fail() { cat "$log" >&2; lack "$*"; }
    apt update || fail "apt-get update failed (its words are above): is there network, and are apt's sources right?"
    if [ $need_rust = yes ]; then
        rust=$(rust_packages) ||
            fail "apt offers no Rust of $RUST_WANTED or newer (or there is no network): enable this Debian's security updates, or install Rust by rustup"
        packages="$packages $rust"
    fi
    # Word splitting is wanted: one argument for each package.
    # shellcheck disable=SC2086
    apt install -y --no-install-recommends $packages ||
        fail "apt-get install$packages failed (its words are above): is there network?"
    rm -f "$log"
    trap - EXIT
    find_rust || lack "Rust was installed, but there is no cargo of $RUST_WANTED or newer on PATH: $PATH"
fi

[ $# -gt 0 ] || exit 0
exec "$@"
