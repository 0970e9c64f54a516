-- What budgets count of embedders, and what a run knows of its caller.

ALTER TABLE usage ADD COLUMN IF NOT EXISTS embedding_tokens BIGINT NOT NULL DEFAULT 0; -- of the texts in embeddings
ALTER TABLE run ADD COLUMN IF NOT EXISTS roles TEXT NOT NULL DEFAULT ''; -- of the caller when the turn was accepted, JSON; '' = none
