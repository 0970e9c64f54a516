-- Removes the plans of the months, the parties, and what invoices were computed from.
DROP TABLE IF EXISTS invoice_basis;
DROP TABLE IF EXISTS invoice_party;
DROP TABLE IF EXISTS app_plan;
