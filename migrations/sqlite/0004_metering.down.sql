-- Removes the tokens of embeddings, and the roles of callers from runs.
ALTER TABLE run DROP COLUMN roles;
ALTER TABLE usage DROP COLUMN embedding_tokens;
