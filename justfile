# The daily commands. `just` lists them.

# List the commands.
default:
    @just --list

# Run a server on 127.0.0.1:10002 that stores in rowhouse.db.
run *flags:
    cargo run -- {{flags}}

# Run every test.
test:
    scripts/test

# Run what depends on the version of PostgreSQL, on these versions of it.
postgres versions="oldest,newest":
    scripts/test --postgres {{versions}}

# Run the tests of the server whose names contain a text, such as `just case paging`.
case name:
    cargo test --locked --test suite -- {{name}}

# Run the tests that stand beside the code.
unit *name:
    cargo test --locked --lib -- {{name}}

# Check form and lints, as CI does.
lint:
    cargo fmt --all --check
    cargo clippy --locked --all-targets -- -D warnings

# Do all that a change has to pass.
ci:
    .ci/run

# Write what scripts/compatibility makes of docs/reference.
compatibility:
    scripts/compatibility

# Fuzz every target for some seconds each.
fuzz seconds="20":
    scripts/fuzz {{seconds}}

# Compare with another build of the server, such as the one before a change.
bench-before program *flags:
    scripts/bench --before {{program}} {{flags}}
