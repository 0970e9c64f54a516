-- What apps that are gone had used of the platform's budgets: their usage went with them, and it still counts.
CREATE TABLE IF NOT EXISTS budget_gone (
    budget TEXT   NOT NULL,
    since  BIGINT NOT NULL, -- the beginning of the window
    app    TEXT   NOT NULL, -- its id
    amount BIGINT NOT NULL,
    PRIMARY KEY (budget, since, app)
);
SELECT stoa_protect_platform('budget_gone');
