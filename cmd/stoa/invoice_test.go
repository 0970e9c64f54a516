package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db/dbtest"
)

// invoiceAnswer is an invoice in a response.
type invoiceAnswer struct {
	ID, Kind, Status string
	Number           int64
	Lines            []map[string]any
	Totals           []struct {
		Currency             string
		Charge, Credits, Due int64
		Remainder            int64
	}
}

// TestInvoices checks that an app's usage becomes an invoice, that credits pay a part of it, that authorised callers
// only can read it, that it can be voided, and that it outlives the app.
func TestInvoices(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.createPrices(t)
		h.createApp(t, "acme", paidApp)
		ana, eve := h.createToken(t, "acme", "ana", nil), h.createToken(t, "acme", "eve", map[string]any{"roles": []string{"viewer"}})
		const base = "/admin/apps/acme"
		var credit struct {
			ID, Status string
			Pending    int64
		}
		h.requireStatus(t, http.StatusCreated, &credit, "POST", base+"/credits", testSecret, map[string]any{"amount": 150, "expires_at": "2999-01-01", "note": "welcome"})
		if status, body := h.sendText(t, ana, "hi"); status != http.StatusOK {
			t.Fatal(status, body)
		}
		month := time.Now().UTC().Format("2006-01")
		var draft invoiceAnswer
		dbtest.WaitUntil(t, "the call is on the draft", func() bool {
			status, body := h.doRequest(t, "GET", base+"/invoices/"+month, testSecret, nil)
			return status == http.StatusOK && json.Unmarshal([]byte(body), &draft) == nil && len(draft.Totals) == 1 && draft.Totals[0].Charge == 400
		})
		if draft.Status != "draft" || draft.Number != 0 || draft.Totals[0].Credits != 150 || draft.Totals[0].Due != 0 || draft.Totals[0].Remainder != 250 {
			t.Errorf("draft %+v", draft)
		}
		var list struct {
			Credits []struct {
				Pending, Remaining int64
				Status             string
			}
		}
		h.requireStatus(t, http.StatusOK, &list, "GET", base+"/credits", testSecret, nil)
		if len(list.Credits) != 1 || list.Credits[0].Pending != 150 || list.Credits[0].Status != "open" {
			t.Errorf("credits %+v", list)
		}
		specific := func() (invoices struct{ Invoices []invoiceAnswer }) {
			h.requireStatus(t, http.StatusOK, &invoices, "GET", "/billing/invoices", eve, nil)
			return invoices
		}
		if got := specific(); len(got.Invoices) != 0 {
			t.Errorf("the app sees %+v before anything is final", got)
		}
		if status, _ := h.doRequest(t, "GET", "/billing/invoices/"+month, eve, nil); status != http.StatusNotFound {
			t.Errorf("the app's draft: %d", status)
		}
		var final invoiceAnswer
		h.requireStatus(t, http.StatusPreconditionFailed, nil, "POST", base+"/invoices/"+month+":reverse", testSecret, nil)
		h.requireStatus(t, http.StatusPreconditionFailed, nil, "POST", base+"/invoices/2999-01:finalize", testSecret, nil)
		h.requireStatus(t, http.StatusPreconditionFailed, nil, "POST", base+"/invoices/"+month+":finalize", testSecret, nil)
		h.requireStatus(t, http.StatusNotFound, nil, "POST", base+"/invoices/soon:finalize", testSecret, nil)
		for range 2 {
			h.requireStatus(t, http.StatusOK, &final, "POST", base+"/invoices/"+month+":finalize", testSecret, map[string]any{"force": true})
		}
		if final.Status != "final" || final.Number != 1 || final.Totals[0] != draft.Totals[0] {
			t.Errorf("final %+v", final)
		}
		if got := specific(); len(got.Invoices) != 1 || got.Invoices[0].Number != 1 {
			t.Errorf("the app sees %+v", got)
		}
		for path, accept := range map[string]string{".csv": "", "": "text/csv, */*;q=0.1"} {
			h.requireMediaType(t, "/billing/invoices/"+month+path, accept, eve, "text/csv; charset=utf-8", ",USD,-0.00000025")
		}
		for path, accept := range map[string]string{".html": "", "": "text/html"} {
			h.requireMediaType(t, base+"/invoices/"+month+path, accept, testSecret, "text/html; charset=utf-8", "-0.00000025 USD")
		}
		for path, accept := range map[string]string{".txt": "", "": "text/plain"} {
			h.requireMediaType(t, "/billing/invoices/"+month+path, accept, eve, "text/plain; charset=utf-8", "-0.00000025 USD\n")
		}
		var books struct {
			Balances map[string]map[string]int64
			Entries  []struct{ Kind string }
			Next     string `json:"next_page_token"`
		}
		h.requireStatus(t, http.StatusOK, &books, "GET", base+"/ledger?page_size=2", testSecret, nil)
		if books.Balances["USD"]["receivable"] != 0 || books.Balances["USD"]["carried"] != 250 || books.Balances["USD"]["cost"] != 11 || len(books.Entries) != 2 || books.Next == "" {
			t.Errorf("books %+v", books)
		}
		var note invoiceAnswer
		h.requireStatus(t, http.StatusOK, &note, "POST", base+"/invoices/"+month+":reverse", testSecret, nil)
		if note.Kind != "credit_note" || note.Number != 2 || note.Totals[0].Remainder != -250 {
			t.Errorf("credit note %+v", note)
		}
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", base+"/credits/"+credit.ID, testSecret, nil)
		h.requireStatus(t, http.StatusNotFound, nil, "DELETE", base+"/credits/nosuch", testSecret, nil)
		if status, body := h.sendText(t, ana, "hi"); status != http.StatusOK {
			t.Fatal(status, body)
		}
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", base, testSecret, nil)
		h.requireStatus(t, http.StatusNotFound, nil, "GET", base, testSecret, nil)
		var kept struct{ Invoices []invoiceAnswer }
		h.requireStatus(t, http.StatusOK, &kept, "GET", base+"/invoices", testSecret, nil)
		if len(kept.Invoices) != 3 || kept.Invoices[0].Number != 3 || kept.Invoices[0].Totals[0].Remainder != 400 || kept.Invoices[2].Status != "reversed" {
			t.Errorf("after the app is gone: %+v", kept)
		}
		h.requireStatus(t, http.StatusNotFound, nil, "GET", "/admin/apps/globex/invoices", testSecret, nil)
	})
}

// requireMediaType requests an invoice in a format and fails the test unless the response has that media type and
// contains part.
func (ts *testServer) requireMediaType(t *testing.T, path, accept, bearer, form, part string) {
	t.Helper()
	req := ts.newRequest(t, "GET", path, bearer, nil)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if status, body := ts.sendRequest(t, req); status != http.StatusOK || resp.Header.Get("Content-Type") != form || !strings.Contains(body, part) {
		t.Errorf("%s (%s): %d %s %s", path, accept, status, resp.Header.Get("Content-Type"), body)
	}
}

// TestExports exports usage into a folder and to a webhook, and checks that settings that cannot work are refused.
func TestExports(t *testing.T) {
	folder := t.TempDir()
	var posts atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posts.Add(1) }))
	defer receiver.Close()
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	for name, value := range map[string]string{
		"STOA_EXPORT_FOLDER": folder, "STOA_EXPORT_FORMAT": "csv", "STOA_EXPORT_WEBHOOK": receiver.URL, "STOA_EXPORT_PRIVATE_NETWORK": "true",
		server.WebhookSecretName: secret,
	} {
		t.Setenv(name, value)
	}
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.createApp(t, "acme", paidApp)
	dbtest.WaitUntil(t, "the exports have begun", func() bool {
		list, err := h.Dependencies.Billing.Exports.ListExports(t.Context())
		return err == nil && len(list) == 2
	})
	if status, body := h.sendText(t, h.createToken(t, "acme", "ana", nil), "hi"); status != http.StatusOK {
		t.Fatal(status, body)
	}
	dbtest.WaitUntil(t, "the call is exported", func() bool {
		files, err := os.ReadDir(folder)
		return err == nil && h.Exporter.DeliverAll(t.Context()) == nil && len(files) > 0 && posts.Load() > 0
	})
	var out struct {
		Exports []struct {
			Name string
			Rows int64
		}
	}
	h.requireStatus(t, http.StatusOK, &out, "GET", "/admin/exports", testSecret, nil)
	if len(out.Exports) != 2 || out.Exports[0].Rows < 1 || out.Exports[1].Name != "webhook" {
		t.Errorf("exports %+v", out)
	}
	if n := h.sumMetric(t, "stoa_exports_total"); n < 2 {
		t.Errorf("the metrics have %v batches, want one for each export", n)
	}
	for name, value := range map[string]string{
		"STOA_EXPORT_FOLDER": folder + "/nosuch", "STOA_EXPORT_FORMAT": "xml", "STOA_EXPORT_WEBHOOK": "ftp://x", server.WebhookSecretName: "short",
		"STOA_EXPORT_STRIPE": "tokens:x", "STOA_EXPORT_STRIPE_KEY": "sk_test_1", "STOA_EXPORT_PRIVATE_NETWORK": "perhaps",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := server.NewExporter(h.Dependencies, nil); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v", err)
			}
		})
	}
}
