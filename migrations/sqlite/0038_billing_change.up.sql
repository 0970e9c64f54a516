-- Which prices, plans and budgets were changed last, so that every process learns of a change from the database as well.
CREATE TABLE IF NOT EXISTS billing_change (
    topic      TEXT   NOT NULL, -- price, plan, budget; '' = the highest generation
    key        TEXT   NOT NULL, -- the id of an app; '' = all
    generation BIGINT NOT NULL,
    PRIMARY KEY (topic, key)
);
CREATE INDEX IF NOT EXISTS billing_change_generation ON billing_change (generation);
