# shellcheck shell=bash
# PostgreSQL of each version that is tested, for scripts/test: its programs, without those
# of clients, as Maven Central has them.

# Version, the package for a kind of machine, its release, and its SHA-256. There is none of
# 14 for arm64.
readonly POSTGRES_PACKAGES="
14 linux-amd64 14.20.0 a0f7b5095c5647ec5058b0cdb58544d02f98ba8cec6f74614c80a5acc8399b29
15 linux-amd64 15.15.0 7c73da91870b0615b37a8ceb84871bd42f28c3600f87a97ca9747f4a0b8d2dbb
16 linux-amd64 16.11.0 7f78235db9c0d94e933e81ec43d00708a5533841d7eb3a9b6b86bb1fd465ae2f
17 linux-amd64 17.7.0 ceb1c01cf5e71d6f906b8614982f6ed61e96b3740dd30758fa6262f97e752b69
18 linux-amd64 18.1.0 65d0723e0274ad3ec6230dcbdfe034af6ee096fce15a77b0f9b8be71d2702934
15 linux-arm64v8 15.15.0 623ee4c35cfdccd585d4473ff9b51942d465a7f8280687e6b960f56066f58909
16 linux-arm64v8 16.10.0 96e6e62674dfbb2fb16081a05525c0454290e163a8d7ae225512cf60ee908371
17 linux-arm64v8 17.7.0 85622d56a394c424db4b15185bad31f51848809cb0810fe87059ec38be23caad
18 linux-arm64v8 18.1.0 ea0f16b754fc0a10d9d8993bbd426c20f8c709b318b28e49b42d9cac1c958b8f
"

# What packages for this machine are called.
postgres_machine() {
    case $(uname -m) in
    x86_64) echo linux-amd64 ;;
    aarch64) echo linux-arm64v8 ;;
    esac
}

# The versions that there are for this machine, the oldest first.
postgres_versions() {
    awk -v machine="$(postgres_machine)" '$2 == machine { print $1 }' <<<"$POSTGRES_PACKAGES"
}

# postgres_version WORD: a version, also if it is named `oldest` or `newest`.
postgres_version() {
    case $1 in
    oldest) postgres_versions | head -n 1 ;;
    newest) postgres_versions | tail -n 1 ;;
    *) printf '%s\n' "$1" ;;
    esac
}

# postgres_programs_of VERSION: fetches the programs, unless they are there, and prints their folder.
postgres_programs_of() {
    local package release sum folder
    read -r package release sum < <(postgres_package "$1") || {
        printf 'there is no PostgreSQL %s for this machine\n' "$1" >&2
        return 1
    }
    folder=$target/postgres/$release
    [[ -x $folder/bin/postgres ]] || fetch_postgres "$package" "$release" "$sum" "$folder" >&2 || return 1
    folder=$(reachable "$folder" "$release") || return 1
    printf '%s/bin\n' "$folder"
}

# postgres_package VERSION: package, release and sum for this machine.
postgres_package() {
    awk -v version="$1" -v machine="$(postgres_machine)" '$1 == version && $2 == machine { print $2, $3, $4; found = 1 }
        END { exit !found }' <<<"$POSTGRES_PACKAGES"
}

# fetch_postgres PACKAGE RELEASE SUM FOLDER: by Maven, from where its settings say.
fetch_postgres() {
    local artifact=embedded-postgres-binaries-$1 jar=$work/embedded-postgres-binaries-$1-$2.jar
    say "Fetching PostgreSQL $2"
    have mvn || { printf 'mvn was not found: Maven fetches PostgreSQL\n'; return 1; }
    (
        cd "$work"
        mvn -B -q -ntp -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy \
            -Dartifact="io.zonky.test.postgres:$artifact:$2" -DoutputDirectory="$work"
    ) || return 1
    sha256sum --check --status <<<"$3  $jar" || { printf '%s is not what was tested before\n' "$jar"; return 1; }
    rm -rf "$4.new"
    mkdir -p "$4.new"
    unpack_postgres "$jar" "$4.new" && rm -rf "$4" "$jar" && mv "$4.new" "$4"
}

# unpack_postgres JAR FOLDER: the archive in it, without unzip and xz, which a machine may lack.
unpack_postgres() {
    python3 - "$@" <<'EOF'
import sys, tarfile, zipfile
with zipfile.ZipFile(sys.argv[1]) as jar:
    name = next(name for name in jar.namelist() if name.endswith(".txz"))
    with jar.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as files:
        files.extractall(sys.argv[2])
EOF
}

# reachable FOLDER NAME: the folder or, if the user who runs PostgreSQL for root may not go there, a copy.
reachable() {
    if ((EUID != 0)) || setpriv --reuid=postgres --regid=postgres --init-groups test -x "$1/bin/postgres"; then
        printf '%s\n' "$1"
        return 0
    fi
    chmod 711 "$work"
    mkdir -p "$work/postgres"
    [[ -d $work/postgres/$2 ]] || cp -R "$1" "$work/postgres/$2" || return 1
    printf '%s\n' "$work/postgres/$2"
}

# What depends on the version: the contract of the store, the plans of its statements, conformance, and what
# survives a PostgreSQL that is killed. No SQLite; one store on plain tables, and one on partitions.
readonly POSTGRES_TESTS=(store:: conformance:: promises::crash promises::outages
    --skip sqlite --skip ::in_memory:: --skip ::in_a_file:: --skip store::citus:: --skip ::distributed::
    --skip ::partitioned:: --skip on_plain_tables_with_)

# run_version VERSION
run_version() {
    local programs with
    if ! programs=$(postgres_programs_of "$1"); then
        record "PostgreSQL $1, preparation" 1 0 0
        return 0
    fi
    say "PostgreSQL $1: $("$programs/postgres" --version)"
    # Citus is of another version, if it is there.
    with=(env -u DATABASE_URL -u CITUS_URL -u CITUS_PROGRAMS POSTGRES_PROGRAMS="$programs")
    cargo_test "PostgreSQL $1" --test suite -- "${POSTGRES_TESTS[@]}"
}
