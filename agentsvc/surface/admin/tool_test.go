package admin_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/store/toolpin"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy"
)

// TestTools checks that an operator sees that a tool's definition has changed, and can accept it.
func TestTools(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{Default: "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}"}, newRoutes)
	pins := toolpin.New(h.DB, tenancy.DefaultID)
	for _, hash := range []string{"h1", "h2"} {
		if _, err := pins.Update(t.Context(), "shop", []toolpin.Definition{{Tool: "echo", Hash: hash, Body: `{"name":"echo"}`}}); err != nil {
			t.Fatal(err)
		}
	}
	sendAdmin := func(want int, method, path, body string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+surfacetest.Secret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, want, text)
		}
		return string(text)
	}
	type pin struct {
		Server, Tool, Status, Hash string
		Drift                      *struct{ Hash string }
	}
	list := func() (out struct{ Tools []pin }) {
		t.Helper()
		if err := json.Unmarshal([]byte(sendAdmin(200, "GET", "/admin/apps/default/tools", "")), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := list().Tools; len(got) != 1 || got[0].Status != "blocked" || got[0].Hash != "h1" || got[0].Drift.Hash != "h2" {
		t.Errorf("the tools are %+v", got)
	}
	const accept = "/admin/apps/default/tools/shop/echo:accept"
	sendAdmin(400, "POST", accept, `{}`)
	sendAdmin(400, "POST", accept, `{"hash":"h3"}`)
	sendAdmin(404, "POST", "/admin/apps/default/tools/shop/other:accept", `{"hash":"h2"}`)
	sendAdmin(404, "GET", "/admin/apps/nobody/tools", "")
	if got := sendAdmin(200, "POST", accept, `{"hash":"h2"}`); !strings.Contains(got, `"accepted"`) {
		t.Error(got)
	}
	if got := list().Tools; len(got) != 1 || got[0].Status != "accepted" || got[0].Hash != "h2" || got[0].Drift != nil {
		t.Errorf("the tools are %+v", got)
	}
	if got := sendAdmin(200, "GET", "/admin/audit", ""); !strings.Contains(got, `"app.tools.accept"`) {
		t.Error(got)
	}
}
