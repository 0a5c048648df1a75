-- The twin of migrations/postgres/0012.

CREATE TABLE deleted_tables (
    table_no   INTEGER PRIMARY KEY,
    account    TEXT NOT NULL,
    name_lower TEXT NOT NULL,
    name       TEXT NOT NULL,
    spread     INTEGER NOT NULL,
    policies   TEXT,
    created    INTEGER NOT NULL,
    records    TEXT NOT NULL,
    deleted_at INTEGER NOT NULL,
    kept_until INTEGER NOT NULL
) STRICT;

CREATE INDEX deleted_tables_by_time ON deleted_tables (deleted_at);
CREATE INDEX deleted_tables_by_end ON deleted_tables (kept_until);
