# shellcheck shell=bash
# The Python clients, for scripts/test.

has_python() { have python3; }

require_python() {
    have python3 || [[ ${CI:-} != true ]] || apt_install python3 python3-venv ||
        die "python3 was not found, and CI needs it."
}

# prepare_python CLIENT NAME: makes the virtual environment that the pinned
# requirements in that folder describe.
prepare_python() {
    local requirements=$CLIENTS/$1/requirements.txt venv=$target/$1-client stamp python
    python=$venv/bin/python
    stamp=$(cat "$requirements" <(python3 --version) | sha256sum)
    if [[ -x $python && $(cat "$venv/stamp" 2>/dev/null) == "$stamp" ]]; then return 0; fi
    say "Preparing the $2"
    rm -rf "$venv"
    if ! python3 -m venv "$venv"; then
        rm -rf "$venv"
        if ! apt_install python3-venv || ! python3 -m venv "$venv"; then
            die "python3 -m venv failed; install python3-venv."
        fi
    fi
    "$python" -m pip install -q --disable-pip-version-check --require-hashes -r "$requirements" || return 1
    printf '%s\n' "$stamp" >"$venv/stamp"
}

# run_python CLIENT NAME STORE [DATABASE_URL]
run_python() {
    say "$2 on $3"
    local status=0 report=$work/$1-$3.xml counts="0 0 0" python=$target/$1-client/bin/python
    (
        cd "$CLIENTS/$1"
        ROWHOUSE_BIN="$target/debug/rowhouse" DATABASE_URL=${4:-} PYTHONDONTWRITEBYTECODE=1 \
            "$python" -m pytest -p no:cacheprovider --junitxml="$report"
    ) || status=$?
    if [[ -f $report ]]; then
        counts=$("$python" - "$report" <<'EOF'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
total, skipped, failed = (int(suite.get(n)) for n in ("tests", "skipped", "failures"))
errors = int(suite.get("errors"))
print(total - skipped - failed - errors, failed + errors, skipped)
EOF
        )
    fi
    # shellcheck disable=SC2086 # three numbers
    record "$2, $3" "$status" $counts
}
