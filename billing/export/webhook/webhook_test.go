package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"stoa/agentsvc/agentsvctest"

	"stoa/billing/budget"
	"stoa/billing/export/exporttest"
	"stoa/billing/export/webhook"
)

// TestExportWebhook verifies the requests as a receiver would.
func TestExportWebhook(t *testing.T) {
	t.Parallel()
	secret, err := webhook.ParseSecret("whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567")))
	agentsvctest.RequireNoErrors(t, err)
	for _, bad := range []string{"", "whsec_", "whsec_short", "0123456789abcdef01234567"} {
		_, err := webhook.ParseSecret(bad)
		agentsvctest.CheckInvalid(t, err, "secret")
	}
	status := http.StatusServiceUnavailable
	var ids []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
			t.Errorf("signature %s, want %s", r.Header.Get("webhook-signature"), want)
		}
		var event struct {
			Type string
			Data struct{ Rows []map[string]any }
		}
		if err := json.Unmarshal(body, &event); err != nil || event.Type != "usage.recorded" || len(event.Data.Rows) != 3 {
			t.Errorf("body %s, error %v", body, err)
		}
		ids = append(ids, r.Header.Get("webhook-id"))
		w.WriteHeader(status)
	}))
	defer server.Close()
	sink := webhook.Sink{URL: server.URL, Secret: secret, Client: server.Client()}
	d, err := exporttest.ExportCalls(t, sink)
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Fatalf("error %v", err)
	}
	status = http.StatusNoContent
	_, err = exporttest.ExportCalls(t, sink)
	if agentsvctest.RequireNoErrors(t, err); !slices.Equal(ids, []string{"out_1", "out_1"}) {
		t.Errorf("ids %v", ids)
	}
	if list := exporttest.ListExports(t, d); !strings.Contains(list[0].Error, "503") {
		t.Errorf("%+v", list)
	}
	server.Close()
	sink.URL += "/?token=canary"
	if _, err := exporttest.ExportCalls(t, sink); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("an address without a server is reported as %v", err)
	}
}

// TestNoticeInMoney checks that a notice about a budget in money has its amounts as decimals as well, and one about
// calls has not.
func TestNoticeInMoney(t *testing.T) {
	t.Parallel()
	var data map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct{ Data map[string]any }
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		data = event.Data
	}))
	defer server.Close()
	sink := webhook.Sink{URL: server.URL, Secret: []byte("0123456789abcdef01234567"), Client: server.Client()}
	n := budget.ThresholdNotice{ThresholdEvent: budget.ThresholdEvent{Committed: 12_500_000_000, Amount: 25_000_000_000}, Unit: budget.InMoney, Currency: "USD"}
	agentsvctest.RequireNoErrors(t, sink.NotifyThreshold(t.Context(), n))
	if data["committed"] != 12_500_000_000.0 || data["committed_decimal"] != "12.50" || data["amount_decimal"] != "25.00" {
		t.Errorf("money: %v", data)
	}
	n.Unit, n.Currency = budget.InCalls, ""
	agentsvctest.RequireNoErrors(t, sink.NotifyThreshold(t.Context(), n))
	if _, has := data["amount_decimal"]; has {
		t.Errorf("calls: %v", data)
	}
}
