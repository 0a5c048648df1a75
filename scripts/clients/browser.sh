# shellcheck shell=bash
# The console in a real browser, for scripts/test: Node.js, and Debian's Chromium or the
# one that CHROMIUM names. Pictures are kept where ROWHOUSE_SCREENSHOTS says.

has_browser() { has_node && [[ -x ${CHROMIUM:-/usr/bin/chromium} ]]; }

require_browser() {
    [[ ${CI:-} == true ]] || return 0
    has_browser || apt_install chromium || true
    has_browser || die "Chromium was not found, and CI needs it."
}

prepare_browser() { prepare_node "$@"; }

run_browser() { run_node "$@"; }
