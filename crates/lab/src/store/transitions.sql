-- States of bundles. Of its own, since stores that were made without it get it when they are opened.
CREATE TABLE IF NOT EXISTS transitions (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,      -- in the run
    bundle TEXT NOT NULL,
    at_s REAL NOT NULL,
    state TEXT NOT NULL,          -- that begins
    reason TEXT NOT NULL,         -- what it was begun for
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;
