-- One row for each account whose service properties were ever set. Members of
-- the object are elements of the document; what is absent has its default.
CREATE TABLE service_properties (
    account    text COLLATE "C" PRIMARY KEY,
    properties jsonb NOT NULL
);
