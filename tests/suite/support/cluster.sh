# A private PostgreSQL cluster that lives as long as its standard input.
# $1: folder of the programs, $2: loopback port. Prints the cluster's folder,
# which also holds its socket, once the server accepts connections.
bin=$1
port=$2
# The end of input is the only signal: neither an interrupt nor a reader of our
# output that is gone must leave the folder behind.
trap '' INT TERM HUP PIPE
cd /
# For slow machines.
export PGCTLTIMEOUT=300
dir=$(mktemp -d "${TMPDIR:-/tmp}/rowhouse-pg.XXXXXX") || exit 1
trap '"$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; rm -rf "$dir"' EXIT
make_cluster() {
    "$bin/initdb" -D "$dir/data" -U rowhouse -A trust -E UTF8 --no-sync "$@" >"$dir/initdb.log" 2>&1
}
# A locale whose order is not that of code points shows where a collation is missing.
make_cluster --locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US ||
    { rm -rf "$dir/data"; make_cluster; } ||
    { cat "$dir/initdb.log" >&2; exit 1; }
"$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" start >/dev/null -o "-k $dir -p $port \
    -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=400 -c shared_buffers=64MB" ||
    { cat "$dir/log" >&2; exit 1; }
echo "$dir"
while read -r _; do :; done
