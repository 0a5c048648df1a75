-- How far copies into this database have come: a row for each range of keys, written in the
-- transaction that stores the entities, and removed when the copy is complete.
CREATE TABLE copy_marks (
    copy      text COLLATE "C" NOT NULL,
    range_no  bigint NOT NULL,
    pk        text COLLATE "C" NOT NULL,
    rk        text COLLATE "C" NOT NULL,
    written   bigint NOT NULL,
    unchanged bigint NOT NULL,
    rejected  bigint NOT NULL,
    PRIMARY KEY (copy, range_no)
);
