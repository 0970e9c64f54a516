package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDeleteUsedSecret checks that the error of a secret that the configuration needs says where it needs it.
func TestDeleteUsedSecret(t *testing.T) {
	t.Parallel()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": {"code": "INVALID_ARGUMENT", "message": "the configuration is not valid", "details": {"request_id": "r1",
			"errors": [{"path": "llms.m.api_key", "line": 3, "column": 49, "message": "needs the variable KEY, which is not among the app's secrets"}]}}}`))
	}))
	defer ts.Close()
	var out bytes.Buffer
	con := &console{in: strings.NewReader(""), out: &out, err: &out}
	cmd := &secretDeleteCmd{serverFlag: serverFlag{Server: ts.URL}, confirmFlag: confirmFlag{Yes: true}, App: "acme", Name: "KEY"}
	const want = "stoa: the configuration is not valid (INVALID_ARGUMENT, request r1)\n3:49: llms.m.api_key: needs the variable KEY, which is not among the app's secrets\n"
	if code := con.reportError(cmd.Run(t.Context(), con)); code != exitFailed || out.String() != want {
		t.Errorf("ended with %d and %q, want %q", code, out.String(), want)
	}
}
