# shellcheck shell=bash
# The Rust client, for scripts/test. It is a cargo project of its own, so that
# what it depends on stays out of the server's.

has_rust() { have cargo; }

# prepare_rust CLIENT NAME
prepare_rust() {
    say "Preparing the $2"
    rust_client "$1" --no-run
}

rust_client() {
    (
        cd "$CLIENTS/$1"
        CARGO_TARGET_DIR=$target/$1-client cargo test --locked "${@:2}"
    )
}

# run_rust CLIENT NAME STORE [DATABASE_URL]
run_rust() {
    say "$2 on $3"
    local status=0 log=$work/$1-$3.log
    ROWHOUSE_BIN="$target/debug/rowhouse" DATABASE_URL=${4:-} rust_client "$1" 2>&1 | tee "$log" || status=$?
    record "$2, $3" "$status" "$(sum passed "$log")" "$(sum failed "$log")" "$(sum ignored "$log")"
}
