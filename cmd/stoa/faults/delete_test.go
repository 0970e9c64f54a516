package faults_test

import (
	"net/http"
	"testing"
	"time"
)

// TestDeleteBusy deletes an app while another process is inside a model call of it, and hears of the deletion late: the last
// invoice has the call.
func TestDeleteBusy(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 2, args: unhurried})
	price := map[string]any{
		"version": "v1", "currency": "USD", "effective_from": "2020-01-01T00:00:00Z",
		"items": []any{map[string]any{"kind": "charge", "meter": "model_calls", "model": "*", "per": 1, "amount": 7}},
	}
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodPost, "/admin/prices", price, nil))
	wait(t.Context(), 2*time.Second) // every process knows the price
	held := c.model.gates.close("hello")
	c.live(c.nodes[1], message{agent: "modelled", text: "hello"})
	held.await(t)
	c.nodes[1].pg.set(wire{delay: 300 * time.Millisecond})
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodDelete, "/admin/apps/acme", nil, nil))
	c.nodes[1].pg.set(whole)
	var list struct {
		Invoices []struct {
			ID     string
			Status string
			Totals []struct{ Charge int64 }
		}
	}
	c.must(c.nodes[0].admin().ask(t.Context(), http.MethodGet, "/admin/apps/acme/invoices", nil, &list))
	var charged int64
	for _, inv := range list.Invoices {
		for _, total := range inv.Totals {
			charged += total.Charge
		}
		if inv.Status != "final" {
			t.Errorf("invoice %s is %s", inv.ID, inv.Status)
		}
	}
	say(t, "the last invoices charge %d", charged)
	if charged != 7 {
		t.Errorf("the app used a model call of 7 and is charged %d: %+v", charged, list)
	}
	if left := c.sql("SELECT COUNT(*) FROM usage u JOIN ledger l ON l.app = u.tenant WHERE l.name = 'acme'")[0][0].(int64); left != 0 {
		t.Errorf("%d rows of usage are left", left)
	}
}
