-- The twin of the file of the same name for PostgreSQL.

CREATE TABLE property_indexes (
    index_no INTEGER PRIMARY KEY,
    table_no INTEGER NOT NULL,
    property TEXT NOT NULL,
    kind     TEXT NOT NULL,
    state    INTEGER NOT NULL,
    changed  INTEGER NOT NULL
) STRICT;

CREATE TABLE property_index_changes (
    id      INTEGER PRIMARY KEY,
    changes INTEGER NOT NULL
) STRICT;
