package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHealth asks servers in every state that a health check meets.
func TestHealth(t *testing.T) {
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Error("the request has a credential")
			}
			if want := map[string]string{"ok": "/health", "ready": "/ready"}[strings.Split(body, `"`)[3]]; want != "" && r.URL.Path != want {
				t.Errorf("the path is %s, want %s", r.URL.Path, want)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	const serves, ready = `{"status":"ok","version":"v1"}`, `{"status":"ready","role":"all"}`
	for name, tt := range map[string]struct {
		handler http.Handler
		tls     bool
		named   bool // the server is named, not found by STOA_PORT
		args    []string
		code    int
		want    string
	}{
		"serves":        {handler: answer(200, serves), want: "ok"},
		"JSON":          {handler: answer(200, serves), args: []string{"--json"}, want: `"version": "v1"`},
		"ready":         {handler: answer(200, ready), args: []string{"--ready"}, want: "ready"},
		"drains":        {handler: answer(503, `{"error":{"code":"UNAVAILABLE","message":"the server is stopping"}}`), args: []string{"--ready"}, code: 1, want: "the server is stopping"},
		"certificate":   {handler: answer(200, serves), tls: true, want: "ok"},
		"named":         {handler: answer(200, serves), named: true, want: "ok"},
		"does not hear": {code: 1, want: "no answer from"},
		"does not answer": {
			handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			args:    []string{"--timeout", "20ms"}, code: 1, want: "no answer from",
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := "127.0.0.1:1"
			if tt.handler != nil {
				start := httptest.NewServer
				if tt.tls {
					start = httptest.NewTLSServer
				}
				s := start(tt.handler)
				defer s.Close()
				address = s.Listener.Addr().String()
			}
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"health"}, tt.args...)
			if tt.named {
				args = append(args, "--server", "http://"+address)
			} else {
				t.Setenv("STOA_PORT", port)
			}
			// The state is a result, on standard output; what went wrong is on standard error.
			var out, errOut bytes.Buffer
			code := runCommand(t.Context(), args, &console{in: strings.NewReader(""), out: &out, err: &errOut})
			got := out.String()
			if tt.code != 0 {
				got = errOut.String()
			}
			if code != tt.code || !strings.Contains(got, tt.want) {
				t.Errorf("stoa %v ended with %d and wrote %q and %q, want %d and %q", args, code, out.String(), errOut.String(), tt.code, tt.want)
			}
		})
	}
}
