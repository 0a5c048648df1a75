# shellcheck shell=bash
# The Java clients, the current and the retired SDK in one project, for scripts/test.

has_java() { have mvn && have javac && (($(java_major) >= 17)); }

java_major() { javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'; }

require_java() {
    [[ ${CI:-} == true ]] || return 0
    has_java || apt_install default-jdk-headless maven || true
    has_java || die "Java 17 or newer with Maven was not found, and CI needs it."
}

# maven CLIENT GOAL: Maven, which leaves nothing in the repository. Two at a time may damage the files that they
# fetch, and the tests of images run beside.
maven() {
    (
        cd "$CLIENTS/$1"
        flock "$target/maven.lock" mvn -B -q -ntp -Dstyle.color=never -Drowhouse.target="$target/$1-client" "$2"
    )
}

# prepare_java CLIENT NAME
prepare_java() {
    say "Preparing the $2"
    maven "$1" test-compile
}

# run_java CLIENT NAME STORE [DATABASE_URL]
run_java() {
    say "$2 on $3"
    local status=0 reports=$target/$1-client/surefire-reports tests failures skipped
    rm -rf "$reports"
    ROWHOUSE_BIN="$target/debug/rowhouse" DATABASE_URL=${4:-} maven "$1" test || status=$?
    tests=$(surefire tests "$reports")
    skipped=$(surefire skipped "$reports")
    failures=$(($(surefire failures "$reports") + $(surefire errors "$reports")))
    printf '%s tests passed, %s failed\n' "$((tests - failures - skipped))" "$failures"
    record "$2, $3" "$status" "$((tests - failures - skipped))" "$failures" "$skipped"
}

# surefire ATTRIBUTE FOLDER: its sum over the reports, one a class.
surefire() {
    { cat "$2"/TEST-*.xml 2>/dev/null || true; } |
        sed -n "s/^<testsuite .* $1=\"\([0-9]*\)\".*/\1/p" | awk '{ total += $1 } END { print total + 0 }'
}
