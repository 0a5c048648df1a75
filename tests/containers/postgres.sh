#!/bin/sh
# The entry point of a PostgreSQL image, made from Debian's packages, that does what
# deploy/compose wants of the official one: makes the database of POSTGRES_USER,
# POSTGRES_PASSWORD and POSTGRES_DB in the volume, and serves it.
set -eu
data=/var/lib/postgresql/data
as_postgres() { setpriv --reuid=999 --regid=999 --clear-groups "$@"; }

mkdir -p "$data"
chown 999:999 "$data"
chmod 700 "$data"
if [ ! -s "$data/PG_VERSION" ]; then
    password=/tmp/password
    printf '%s\n' "$POSTGRES_PASSWORD" >"$password"
    chmod 644 "$password"
    as_postgres initdb -D "$data" -U "$POSTGRES_USER" --pwfile "$password" -E UTF8 --locale=C.UTF-8 \
        --auth-local=trust --auth-host=scram-sha-256 >/dev/null
    rm "$password"
    echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | as_postgres postgres --single -D "$data" postgres >/dev/null
fi
exec setpriv --reuid=999 --regid=999 --clear-groups \
    postgres -D "$data" -c "listen_addresses=*" -c unix_socket_directories=/tmp
