-- Indexes over properties that operators have made. The indexes themselves are on entities, and named
-- after index_no. state: 0 is being built, 1 is used, 2 is to be removed; changed: when it became so.
-- A table that was deleted leaves its rows here until its indexes are removed.
CREATE TABLE property_indexes (
    index_no bigint PRIMARY KEY,
    table_no bigint NOT NULL,
    property text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    state    integer NOT NULL,
    changed  bigint NOT NULL
);

-- One row, made by the first change. It counts the changes of indexes, so that servers learn of one
-- by reading a number.
CREATE TABLE property_index_changes (
    id      integer PRIMARY KEY,
    changes bigint NOT NULL
);
