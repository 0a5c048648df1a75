-- Tables whose spread is being changed, by their current numbers; the spread in tables is negative
-- meanwhile. Entities are served from the buckets of source_no, and copied to those of target_no. share, pk
-- and rk: how far the copy has come.
CREATE TABLE respreads (
    table_no      bigint PRIMARY KEY,
    source_no     bigint NOT NULL,
    source_spread integer NOT NULL,
    target_no     bigint NOT NULL,
    target_spread integer NOT NULL,
    share         integer NOT NULL,
    pk            text COLLATE "C" NOT NULL,
    rk            text COLLATE "C" NOT NULL
);

-- Keys of entities of such tables that were written, or may have been, and have to be copied again.
-- Beside entities where Citus distributes them.
CREATE TABLE respread_changes (
    bucket   bigint NOT NULL,
    table_no bigint NOT NULL,
    pk       text COLLATE "C" NOT NULL,
    rk       text COLLATE "C" NOT NULL,
    PRIMARY KEY (bucket, table_no, pk, rk)
);
