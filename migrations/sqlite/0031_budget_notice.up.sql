ALTER TABLE budget ADD COLUMN updated_by TEXT NOT NULL DEFAULT ''; -- who changed it last, '' = nobody yet
ALTER TABLE budget_event ADD COLUMN told BOOLEAN NOT NULL DEFAULT FALSE; -- to the webhook, where there is one
UPDATE budget_event SET told = TRUE;
CREATE INDEX IF NOT EXISTS budget_event_untold ON budget_event (at) WHERE NOT told;
