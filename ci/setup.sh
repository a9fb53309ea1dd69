#!/bin/sh
# Installs what a machine with only a Rust toolchain lacks for building forebay: a C compiler, make, cmake, and
# on x86 nasm (libjpeg-turbo's SIMD code is NASM source). One line and nothing else when all of it is there.
#
# Without nasm the build fails rather than giving a slow decoder: turbojpeg-sys asks libjpeg-turbo for REQUIRE_SIMD.
# TURBOJPEG_SOURCE=pkg-config links the system's libturbojpeg instead, which turbojpeg-sys takes from 3.0 on only;
# then neither cmake nor nasm is needed.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

say() { echo "setup: $*"; }

die() {
    echo "setup: $*" >&2
    exit 1
}

# NASM from 2.13 on, or yasm.
assembler_ok() {
    if have nasm; then
        version=$(nasm -v 2>/dev/null | sed -n 's/^NASM version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
        major=${version% *}
        minor=${version#* }
        [ -n "$version" ] && { [ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 13 ]; }; } && return 0
    fi
    have yasm
}

system_turbojpeg() {
    case "$(printf %s "${TURBOJPEG_SOURCE:-}" | tr '[:upper:]' '[:lower:]')" in
        pkg-config | pkgconfig | pkgconf) return 0 ;;
        *) return 1 ;;
    esac
}

# Prints the tools that are missing, one word each.
missing_tools() {
    have cc || echo cc
    if system_turbojpeg; then return; fi
    have make || echo make
    have cmake || echo cmake
    case "$(uname -m)" in
        x86_64 | i?86) assembler_ok || echo nasm ;;
    esac
}

# Prints the packages that bring the tools given, in the words of a package manager.
packages() {
    manager=$1
    shift
    for tool in "$@"; do
        case "$manager:$tool" in
            apt:cc) echo gcc libc6-dev ;;
            dnf:cc | pacman:cc) echo gcc ;;
            apk:cc) echo gcc musl-dev ;;
            *) echo "$tool" ;;
        esac
    done | xargs
}

run_apt() {
    if [ "$(id -u)" -eq 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get "$@"
    else
        sudo DEBIAN_FRONTEND=noninteractive apt-get "$@"
    fi
}

# Whether apt's package lists are absent or older than a week: then an install may ask for files that are gone.
apt_lists_old() {
    [ -z "$(find /var/lib/apt/lists -name '*_Packages*' -mtime -7 2>/dev/null | head -n 1)" ]
}

have cargo || die "cargo is not on PATH; install a Rust toolchain first: https://rustup.rs"

if system_turbojpeg; then
    have pkg-config || die "TURBOJPEG_SOURCE=pkg-config, but pkg-config is not on PATH"
    if ! pkg-config --atleast-version=3.0 libturbojpeg; then
        found=$(pkg-config --modversion libturbojpeg 2>/dev/null || echo none)
        die "TURBOJPEG_SOURCE=pkg-config needs libturbojpeg 3.0 or later, found: $found." \
            "Unset TURBOJPEG_SOURCE to build the bundled one"
    fi
fi

missing=$(missing_tools | xargs)
if [ -z "$missing" ]; then
    say "nothing to install"
    exit 0
fi

if ! have apt-get; then
    say "missing: $missing" >&2
    # shellcheck disable=SC2086 # one word a tool
    if have dnf; then
        die "not an apt system; install them with: sudo dnf install $(packages dnf $missing)"
    elif have pacman; then
        die "not an apt system; install them with: sudo pacman -S $(packages pacman $missing)"
    elif have apk; then
        die "not an apt system; install them with: sudo apk add $(packages apk $missing)"
    fi
    die "no apt-get, dnf, pacman or apk here; install them by hand"
fi

# shellcheck disable=SC2086
wanted=$(packages apt $missing)
line="apt-get install -y --no-install-recommends $wanted"
if [ "$(id -u)" -ne 0 ] && ! have sudo; then
    die "missing: $missing. Not root and no sudo here; as root, run: apt-get update && $line"
fi

say "missing: $missing; will run: $line"
updated=no
if apt_lists_old; then
    say "apt's package lists are absent or older than a week; will run first: apt-get update"
    run_apt update -q
    updated=yes
fi
# shellcheck disable=SC2086
if ! run_apt install -q -y --no-install-recommends $wanted; then
    [ "$updated" = no ] || die "apt-get could not install: $wanted"
    say "the install failed; will run apt-get update and try once more"
    run_apt update -q
    run_apt install -q -y --no-install-recommends $wanted
fi

missing=$(missing_tools | xargs)
[ -z "$missing" ] || die "installed $wanted, but still missing: $missing (nasm has to be 2.13 or later)"
say "installed $wanted"
