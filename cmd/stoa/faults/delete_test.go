package faults_test

import (
	"net/http"
	"testing"
	"time"
)

// TestDeleteBusy deletes an app while another process, which learns of the deletion late, executes a model call of
// it: the last invoice has the call.
func TestDeleteBusy(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2, args: longStaleArgs})
	price := map[string]any{
		"version": "v1", "currency": "USD", "effective_from": "2020-01-01T00:00:00Z",
		"items": []any{map[string]any{"kind": "charge", "meter": "model_calls", "model": "*", "per": 1, "amount": 7}},
	}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/prices", price, nil))
	sleepContext(t.Context(), 2*time.Second) // until every process has the price
	blocked := c.model.barriers.blockRequests("hello")
	c.startTaskAt(c.nodes[1], message{agent: "modelled", text: "hello"})
	blocked.waitForRequest(t)
	c.nodes[1].postgresProxy.setState(linkState{delay: 300 * time.Millisecond})
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodDelete, "/admin/apps/acme", nil, nil))
	c.nodes[1].postgresProxy.setState(linkUp)
	var list struct {
		Invoices []struct {
			ID     string
			Status string
			Totals []struct{ Charge int64 }
		}
	}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(t.Context(), http.MethodGet, "/admin/apps/acme/invoices", nil, &list))
	var charged int64
	for _, inv := range list.Invoices {
		for _, total := range inv.Totals {
			charged += total.Charge
		}
		if inv.Status != "final" {
			t.Errorf("invoice %s is %s", inv.ID, inv.Status)
		}
	}
	reportf(t, "the last invoices charge %d", charged)
	if charged != 7 {
		t.Errorf("the app used a model call of 7 and is charged %d: %+v", charged, list)
	}
	if left := c.querySQL("SELECT COUNT(*) FROM usage u JOIN ledger l ON l.app = u.tenant WHERE l.name = 'acme'")[0][0].(int64); left != 0 {
		t.Errorf("%d rows of usage are left", left)
	}
}
