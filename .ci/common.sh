# shellcheck shell=bash
# Functions for .ci/run and .ci/full, which source this file in the repository's root.

# The oldest supported release. Formatter and lints change with each release, so CI uses this one.
RUST_VERSION=1.95.0
failed=()
begun=$SECONDS
declare -A aside=()
trap 'for step in "${aside[@]}"; do kill -- "-${step% *}" 2>/dev/null; done' EXIT

# Runs a command as the step NAME and prints how long it took: NAME COMMAND...
step() {
    local name=$1 start=$SECONDS
    shift
    say "[$name] $*"
    if "$@"; then
        printf -- '-- %s: passed in %s s\n' "$name" $((SECONDS - start))
    else
        printf -- '-- %s: FAILED after %s s\n' "$name" $((SECONDS - start))
        failed+=("$name")
    fi
}

# Begins a command as the step NAME beside the next steps, with NICE (0 to 19: what they leave of the machine):
# begin NAME NICE COMMAND...
begin() {
    local name=$1 nice=$2 log
    shift 2
    log=$(mktemp) || exit 1
    # A process group of its own, so that it ends with this script.
    set -m
    (
        renice -n "$nice" $BASHPID >/dev/null
        failed=()
        step "$name" "$@"
        [ ${#failed[@]} = 0 ]
    ) >"$log" 2>&1 </dev/null &
    set +m
    aside[$name]="$! $log"
}

# Waits for the step NAME that was begun, and prints what it printed.
end() {
    local pid log
    read -r pid log <<<"${aside[$1]}"
    wait "$pid" || failed+=("$1")
    unset "aside[$1]"
    cat "$log"
    rm "$log"
}

# Prints how long all steps took, and the failed ones. Exits with 1 if there are any.
finish() {
    say "Took $(((SECONDS - begun) / 60)) min $(((SECONDS - begun) % 60)) s"
    if [ ${#failed[@]} != 0 ]; then
        echo "FAILED: ${failed[*]}"
        exit 1
    fi
    echo "Everything passed"
}

pin_rust() {
    if ! have rustup; then
        echo "rustup is not installed: using $(cargo --version)"
    elif rustup toolchain install "$RUST_VERSION" --profile minimal --component clippy --component rustfmt; then
        export RUSTUP_TOOLCHAIN=$RUST_VERSION
    else
        echo "Rust $RUST_VERSION cannot be installed: using $(cargo --version)"
    fi
}

# Fails and prints the lines, if any have more than 120 characters. Rows of Markdown tables may be longer.
no_long_lines() {
    local long places=('*.'{rs,c,cpp,cu,h,css,js,py,pyi,sh,toml,md} check demo .ci scripts bench fuzz/run)
    places+=(packaging/debian)
    long=$(git ls-files -z -- "${places[@]}" | LC_ALL=C.UTF-8 xargs -0 grep -HnIE '.{121}' |
        grep -vE '^[^:]*\.md:[0-9]+: *\||^packaging/debian/copyright:')
    [ -z "$long" ] || { printf 'longer than 120 characters:\n%s\n' "$long"; return 1; }
}

scripts() {
    local script scripts=(demo check .ci/{run,full,soak} fuzz/run scripts/{board,cassandra,operation-pictures,python})
    scripts+=(packaging/debian/{postinst,prerm,postrm})
    for script in "${scripts[@]}" scripts/setup.sh .ci/common.sh; do bash -n "$script" || return 1; done
    no_long_lines || return 1
    if ! have shellcheck; then
        echo "SKIPPED: shellcheck is not installed: syntax checked only"
        return 0
    fi
    shellcheck -x "${scripts[@]}"
}

docs() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps; }

# Checks the figures of a run of two epochs over 600 images: all delivered, by both prongs, without a fault. On a busy
# machine a drive may be slow, and the run may stall.
figures_are_whole() {
    local figures=$1
    grep -q '^  "images": 1200,$' "$figures" || { echo "$figures: not 1200 images"; return 1; }
    if grep -o '^      "kind": "[a-z]*"' "$figures" | grep -v -e '"slow"$' -e '"stall"$'; then
        echo "$figures: faults"
        return 1
    fi
    grep -q '^  "corrupt": \[\],$' "$figures" || { echo "$figures: corrupt samples"; return 1; }
    if [ "$(grep -c '^      "batches": [1-9][0-9]*,$' "$figures")" -lt 2 ]; then
        echo "$figures: one prong did nothing"
        return 1
    fi
}
