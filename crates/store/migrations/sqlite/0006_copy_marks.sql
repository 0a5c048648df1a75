-- The twin of migrations/postgres/0005.

CREATE TABLE copy_marks (
    copy      TEXT NOT NULL,
    range_no  INTEGER NOT NULL,
    pk        TEXT NOT NULL,
    rk        TEXT NOT NULL,
    written   INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    rejected  INTEGER NOT NULL,
    PRIMARY KEY (copy, range_no)
) STRICT;
