# shellcheck shell=bash
# What .ci/run and scripts/test share: the processor time of a shell, and the parts that run only if their inputs have
# changed since they last passed. tests/tested has a hash of the inputs of each such part.

# cpu_seconds FILE: sets `cpu` to the processor seconds of the commands of this shell that have ended. `times` of a
# subshell counts from 0, so its output goes to FILE.
cpu_seconds() {
    times >"$1"
    cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$1")
}

# has_changed PART INPUT…: whether these inputs of a part have not passed yet. With --all, always. A part that does not
# run is named in $work/summary.
has_changed() {
    [[ -z $all && $(fingerprint "${@:2}") == "$(cat "tests/tested/$1" 2>/dev/null)" ]] || return 0
    printf '%s: its inputs have not changed since it passed (--all runs it)\n' "$1" >>"$work/summary"
    return 1
}

# note_tested PART INPUT…: notes that the part passed with these inputs.
note_tested() {
    mkdir -p tests/tested
    fingerprint "${@:2}" >"tests/tested/$1"
}

fingerprint() { git ls-files -z -- "$@" | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1; }
