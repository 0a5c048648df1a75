# shellcheck shell=bash
# The Go client, for scripts/test.

# The release to fetch where the installed one is older and cannot fetch it by
# itself, as in Debian 12.
readonly GO_RELEASE=go1.23.12

require_go() {
    have go || [[ ${CI:-} != true ]] || apt_install golang || die "Go was not found, and CI needs it."
}

has_go() { have go; }

# prepare_go CLIENT NAME: compiles.
prepare_go() {
    use_new_go || return 1
    say "Preparing the $2"
    (cd "$CLIENTS/$1" && go vet ./...)
}

# Puts a release that is new enough first in the path.
use_new_go() {
    local minor folder
    minor=$(GOTOOLCHAIN=local go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
    if [[ -n $minor ]] && ((minor < 21)); then
        folder=$(fetch_go) || return 1
        PATH=$folder/bin:$PATH
    fi
}

# Fetches the release from the module proxy, which checks its sum, and prints
# its folder. Releases before 1.21 unpack it like any module: nothing is
# executable.
fetch_go() {
    local folder system architecture
    system=$(go env GOOS)
    architecture=$(go env GOARCH)
    folder=$target/go/golang.org/toolchain@v0.0.1-$GO_RELEASE.$system-$architecture
    if [[ ! -x $folder/bin/go ]]; then
        say "Fetching $GO_RELEASE" >&2
        (
            cd "$work"
            GOMODCACHE=$target/go GOFLAGS=-modcacherw \
                go mod download "golang.org/toolchain@v0.0.1-$GO_RELEASE.$system-$architecture"
        ) >&2 || return 1
        chmod +x "$folder"/pkg/tool/*/* "$folder"/bin/*
    fi
    printf '%s\n' "$folder"
}

# run_go CLIENT NAME STORE [DATABASE_URL]
run_go() {
    use_new_go || return 1
    say "$2 on $3"
    local status=0 report=$work/$1-$3.json
    (
        cd "$CLIENTS/$1"
        ROWHOUSE_BIN="$target/debug/rowhouse" DATABASE_URL=${4:-} go test -count=1 -timeout=300s -json ./...
    ) >"$report" || status=$?
    if ((status != 0)); then sed -n 's/.*"Output":"\(.*\)\\n"}$/\1/p' "$report"; fi
    printf '%s tests passed, %s failed\n' "$(go_count pass "$report")" "$(go_count fail "$report")"
    record "$2, $3" "$status" "$(go_count pass "$report")" "$(go_count fail "$report")" "$(go_count skip "$report")"
}

# go_count ACTION LOG: how many tests ended so, parts of tests not counted.
go_count() { grep -cE "\"Action\":\"$1\".*\"Test\":\"[^/\"]+\"" "$2" || true; }
