-- Removes the schema and all data. The two roles stay: they belong to the whole cluster, where other databases use them.
DROP TABLE IF EXISTS usage_exported, export_cursor, export, invoice_number, invoice, credit, usage_billed,
    ledger_posting, ledger_entry, ledger, reservation_line, reservation, budget_gone, budget_event, budget_balance,
    budget, billing_change, plan, price, stored_sample, usage, rate_count, schedule_app, schedule, credential,
    tool_pin, memory, session_summary, session_turn, worker, run, receiver, call_cancel, approval, sent, event, task,
    audit_flaw, audit_head, audit, api_key, app_role, app_mark, app_secret, app_revision, app, duty,
    admin_call, signing_key, jwks, setting;

DROP FUNCTION IF EXISTS stoa_protect_platform(REGCLASS), stoa_protect_tenant(REGCLASS), stoa_tenant(), stoa_now();

DO $$
BEGIN
    EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM stoa_tenant, stoa_platform', current_schema());
END
$$;
