-- Removes the tokens of embeddings, and the roles of callers from runs.
ALTER TABLE run DROP COLUMN IF EXISTS roles;
ALTER TABLE usage DROP COLUMN IF EXISTS embedding_tokens;
