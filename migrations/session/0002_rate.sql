-- What is counted against the limits of an app, in a database that it brings.
CREATE TABLE rate_count (
    tenant  TEXT   NOT NULL, -- the app's id
    counter TEXT   NOT NULL, -- the rule, whose count it is, and the beginning of the window
    end_at  BIGINT NOT NULL, -- of the window, microseconds since 1970
    used    BIGINT NOT NULL,
    PRIMARY KEY (tenant, counter)
);
