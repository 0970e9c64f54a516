package main

import (
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestURLs checks that a path that is not valid text is refused like any other mistake, before a database is asked
// for it, and that a query that would be parsed only in part is refused.
func TestURLs(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewPostgresURL(t))
	h.createApp(t, "acme", `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m}}}`)
	ana := h.createToken(t, "acme", "ana", map[string]any{"roles": []string{"admin"}})
	var cases []requestCase
	for _, path := range []string{"/admin/apps/%00/ledger", "/admin/apps/%ff/credits", "/admin/apps/acme/invoices/a%00b", "/admin/apps/acme/invoices/%C3%28"} {
		cases = append(cases, requestCase{"no text", "GET", path, testSecret, nil, 404, "NOT_FOUND"})
	}
	for query, field := range map[string]string{
		"app=%00": "app", "actor=%ff": "actor", "action=a%00b": "action", "app=%zz": "query", "app=acme;actor=x": "query", "%00=1": "query", "=%00": "query",
	} {
		cases = append(cases, requestCase{"no text", "GET", "/admin/audit?" + query, testSecret, nil, 400, `"field":"` + field + `"`})
	}
	h.checkRequests(t, append(cases,
		requestCase{"a key that is none", "DELETE", "/admin/apps/acme/keys/%00", testSecret, nil, 404, "NOT_FOUND"},
		requestCase{"an invoice of one's own", "GET", "/billing/invoices/%00", ana, nil, 404, "NOT_FOUND"},
		requestCase{"a task of one's own", "GET", "/tasks/%00/checkpoints", ana, nil, 404, "NOT_FOUND"},
		requestCase{"without a credential", "GET", "/admin/audit?app=%00", "", nil, 401, "UNAUTHENTICATED"},
		requestCase{"text", "GET", "/admin/audit?app=%C3%A4&action=a%20b", testSecret, nil, 200, `"entries":[]`},
	))
}
