-- What is counted against the limits of an app, where it is counted here.
CREATE TABLE IF NOT EXISTS rate_count (
    tenant  TEXT   NOT NULL,
    counter TEXT   NOT NULL, -- the rule, whose count it is, and the beginning of the window
    end_at  BIGINT NOT NULL, -- of the window
    used    BIGINT NOT NULL,
    PRIMARY KEY (tenant, counter)
);

ALTER TABLE app ADD COLUMN rates TEXT NOT NULL DEFAULT '[]'; -- the operator's limits of the app's calls, JSON
ALTER TABLE run ADD COLUMN reserved TEXT NOT NULL DEFAULT ''; -- what its call holds of the limits of tokens
