# shellcheck shell=bash
# The JavaScript clients, for scripts/test.

has_node() {
    have npm && have node && (($(node_major) >= 18))
}

node_major() { node -p 'process.versions.node.split(".")[0]'; }

require_node() {
    [[ ${CI:-} == true ]] || return 0
    has_node || apt_install nodejs npm || true
    has_node || die "Node.js 18 or newer with npm was not found, and CI needs it."
}

# prepare_node CLIENT NAME: installs what the lock file describes.
prepare_node() {
    local stamp folder=$CLIENTS/$1
    local installed=$folder/node_modules/.stamp
    stamp=$(cat "$folder"/package*.json <(node --version) | sha256sum)
    if [[ $(cat "$installed" 2>/dev/null) == "$stamp" ]]; then return 0; fi
    say "Preparing the $2"
    (cd "$folder" && npm ci --no-audit --no-fund) || return 1
    printf '%s\n' "$stamp" >"$installed"
}

# run_node CLIENT NAME STORE [DATABASE_URL]
run_node() {
    say "$2 on $3"
    local status=0 report=$work/$1-$3.tap failures
    (
        cd "$CLIENTS/$1"
        # Node.js 18, which Debian 12 has, keeps the global that the SDK needs behind a flag.
        if (($(node_major) == 18)); then export NODE_OPTIONS=--experimental-global-webcrypto; fi
        # Releases before 18.19 do not know it.
        concurrency=(--test-concurrency="$(nproc)")
        node "${concurrency[@]}" --version >/dev/null 2>&1 || concurrency=()
        ROWHOUSE_BIN="$target/debug/rowhouse" DATABASE_URL=${4:-} \
            node --test "${concurrency[@]}" --test-reporter=tap tests/*.test.js
    ) >"$report" || status=$?
    failures=$(($(tap fail "$report") + $(tap cancelled "$report")))
    if ((status != 0)); then cat "$report"; fi
    printf '%s tests passed, %s failed\n' "$(tap pass "$report")" "$failures"
    record "$2, $3" "$status" "$(tap pass "$report")" "$failures" "$(tap skipped "$report")"
}

# tap WORD LOG: the number in the line `# WORD number` that ends a report.
tap() { awk -v word="$1" '$1 == "#" && $2 == word && NF == 3 { n = $3 } END { print n + 0 }' "$2"; }
