# What scripts that start PostgreSQL servers do to one of them, whose data is in $dir/$1.

# Seconds to start or promote one, for slow machines.
export PGCTLTIMEOUT=300

postmaster() {
    head -n 1 "$dir/$1/postmaster.pid"
}
children() {
    ps -A -o pid=,ppid= | awk -v parent="$1" '$2 == parent { print $1 }'
}
# As if the machine's power were gone, but for what the system has in its caches:
# no process of the server gets to do anything more.
die() {
    pid=$(postmaster "$1") || return
    # Stopped first, so that it does not see its children end.
    kill -STOP "$pid"
    kill -KILL $(children "$pid")
    kill -KILL "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}
freeze() {
    pid=$(postmaster "$1")
    kill -STOP "$pid" $(children "$pid") 2>/dev/null
}
thaw() {
    pid=$(postmaster "$1")
    kill -CONT $(children "$pid") "$pid" 2>/dev/null
}
