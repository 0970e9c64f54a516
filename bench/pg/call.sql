\set n :n + 1
\set id :run * 100000000000000 + :client_id * 1000000000 + :n
\set now 1700000000000000 + :n

-- Accept: the task, its first events and its run.
\startpipeline
BEGIN;
INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
VALUES ('0199c2f0-7a10-7000-8000-000000000001', lpad(CAST(:id AS TEXT), 36, '0'), 'assistant', lpad(CAST(:id AS TEXT), 36, 'c'), 'https://stoa.example', 'ana', 'working', 1, 2, 2, 1, CAST(:now AS BIGINT), CAST(:now AS BIGINT));
INSERT INTO event (tenant, task, seq, at, kind, body) VALUES
('0199c2f0-7a10-7000-8000-000000000001', lpad(CAST(:id AS TEXT), 36, '0'), 1, CAST(:now AS BIGINT), 'status', '{"state":"submitted","message":{"id":"0199c2f0-7a10-7000-8000-00000000abcd","role":"user","parts":[{"text":"hello there"}]}}'),
('0199c2f0-7a10-7000-8000-000000000001', lpad(CAST(:id AS TEXT), 36, '0'), 2, CAST(:now AS BIGINT), 'status', '{"state":"working"}');
INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, last_error, created_at)
VALUES ('0199c2f0-7a10-7000-8000-000000000001', lpad(CAST(:id AS TEXT), 36, '0'), 1, 'running', 1, 1, 1, '0199c2f0-7a10-7000-8000-0000000000ff', CAST(:now AS BIGINT), '', CAST(:now AS BIGINT));
COMMIT;
\endpipeline

-- Finish: the last events with usage and answer, the end of the run, the session's turn.
\startpipeline
BEGIN;
UPDATE task SET seq = 4, status_seq = 4, state = 'completed', updated_at = CAST(:now AS BIGINT)
WHERE tenant = '0199c2f0-7a10-7000-8000-000000000001' AND id = lpad(CAST(:id AS TEXT), 36, '0') AND epoch = 1 AND seq = 2 AND state = 'working';
INSERT INTO event (tenant, task, seq, at, kind, body) VALUES
('0199c2f0-7a10-7000-8000-000000000001', lpad(CAST(:id AS TEXT), 36, '0'), 3, CAST(:now AS BIGINT), 'usage', '{"usage":{"provider":"scripted","model":"scripted","input":4,"output":6}}'),
('0199c2f0-7a10-7000-8000-000000000001', lpad(CAST(:id AS TEXT), 36, '0'), 4, CAST(:now AS BIGINT), 'status', '{"state":"completed","message":{"id":"0199c2f0-7a10-7000-8000-00000000dcba","role":"agent","parts":[{"text":"You said: hello there"}],"metadata":{"execution_time":0.000123456,"model":"scripted","tokens_used":{"cache_read":0,"cache_write":0,"input":4,"output":6,"reasoning":0,"total":10}}}}');
UPDATE run SET state = 'completed', worker = '', available_at = CAST(:now AS BIGINT), last_error = ''
WHERE tenant = '0199c2f0-7a10-7000-8000-000000000001' AND task = lpad(CAST(:id AS TEXT), 36, '0') AND turn = 1;
INSERT INTO session_turn (tenant, owner_iss, owner_sub, context_id, position, task, body)
VALUES ('0199c2f0-7a10-7000-8000-000000000001', 'https://stoa.example', 'ana', lpad(CAST(:id AS TEXT), 36, 'c'), 1, lpad(CAST(:id AS TEXT), 36, '0'), '[{"message":{"id":"0199c2f0-7a10-7000-8000-00000000abcd","role":"user","parts":[{"text":"hello there"}]}},{"message":{"id":"0199c2f0-7a10-7000-8000-00000000dcba","role":"agent","parts":[{"text":"You said: hello there"}]}}]');
COMMIT;
\endpipeline
