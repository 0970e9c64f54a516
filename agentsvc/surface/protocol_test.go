package surface_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/stream"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

// newTelegraphRoutes returns a complete protocol: a list of routes, here with one. A message goes to an agent, and the
// states of its task come back as events in capitals.
func newTelegraphRoutes() []surface.Route {
	return []surface.Route{{
		Method: http.MethodPost, Pattern: "/telegraph/{agent}", Kind: surface.Tenant, LargeBody: true, NoDeadline: true, RequestHeaders: []string{"Telegraph-Key"}, ResponseHeaders: []string{"Telegraph-Fee"},
		EncodeError: func(f apierror.Fault) (int, any) { return f.Status, map[string]any{"STOP": f.Code} },
		Serve: func(w http.ResponseWriter, r *http.Request) error {
			var b struct{ Text string }
			if err := surface.DecodeMessage(r, &b); err != nil {
				return err
			}
			v := surface.RequestOf(r)
			m := agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{Text: b.Text}}}
			sub, err := v.AdmitMessage(r.Context(), surface.PathParam(r, "agent"), m, nil)
			if err != nil {
				return err
			}
			f, err := v.SubmitAndSubscribe(r.Context(), sub)
			if err != nil {
				return err
			}
			return v.StreamEvents(w, f, stream.Encoder{EndsWhenSettled: true, EncodeError: func(error) any { return "STOP" }, EncodeEvent: func(ev agentsvc.Event) any {
				if ev.Status == nil {
					return nil
				}
				word := string(ev.Status.State)
				if message := ev.Status.Message; message != nil {
					word += ": " + message.Parts[0].Text
				}
				return strings.ToUpper(word)
			}})
		},
	}}
}

// TestNewProtocol checks that a protocol which the package does not know gets everything from it: credentials, apps,
// scopes, limits, bounds, errors in its own form, and cross-origin headers.
func TestNewProtocol(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{Default: config}, func(*surfacetest.Fixture) []surface.Route { return newTelegraphRoutes() })
	h.CreateApp(t, "acme", config+"rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: day, limit: 2}]}\n")
	h.CreateApp(t, "globex", config)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	viewer := h.MintToken(t, "acme", authz.TokenSpec{Subject: "vera", Roles: []string{"viewer"}})
	hello := map[string]string{"text": "hello"}
	wantEvents := `"SUBMITTED: HELLO" "WORKING" "COMPLETED: YOU SAID: HELLO"`
	tests := []struct {
		name, path, token string
		body              any
		status            int
		want              string
	}{
		{"open", "/telegraph/assistant", "", hello, 200, wantEvents},
		{"token", "/telegraph/assistant", ana, hello, 200, wantEvents},
		{"token and app", "/apps/acme/telegraph/assistant", ana, hello, 200, wantEvents},
		{"limit", "/telegraph/assistant", ana, hello, 429, `{"STOP":"RESOURCE_EXHAUSTED"}`},
		{"another app", "/apps/globex/telegraph/assistant", ana, hello, 404, `{"STOP":"NOT_FOUND"}`},
		{"no credential", "/apps/acme/telegraph/assistant", "", hello, 401, `{"STOP":"UNAUTHENTICATED"}`},
		{"no permission", "/telegraph/assistant", viewer, hello, 403, `{"STOP":"PERMISSION_DENIED"}`},
		{"no such agent", "/telegraph/nobody", "", hello, 404, `{"STOP":"NOT_FOUND"}`},
		{"no JSON", "/telegraph/assistant", "", "hello", 400, `{"STOP":"INVALID_ARGUMENT"}`},
		{"too deep", "/telegraph/assistant", "", strings.Repeat("[", 65), 413, `{"STOP":"RESOURCE_EXHAUSTED"}`},
	}
	for _, tt := range tests {
		resp := h.OpenResponse(t, http.MethodPost, tt.path, tt.token, tt.body)
		var got string
		if next := surfacetest.ReadEvents(t, resp); resp.StatusCode == http.StatusOK {
			var words []string
			for ev, ok := next(); ok; ev, ok = next() {
				words = append(words, strings.TrimSpace(ev.Text))
			}
			got = strings.Join(words, " ")
			_ = resp.Body.Close()
		} else {
			got = readBody(t, resp)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || resp.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d:\n%s", tt.name, resp.StatusCode, tt.status, diff)
		}
	}
	resp, _ := h.Do(t, http.MethodOptions, "/telegraph/assistant", "", nil, "Origin", "https://page.test")
	for header, want := range map[string]string{"Access-Control-Allow-Headers": "Telegraph-Key", "Access-Control-Expose-Headers": "Telegraph-Fee"} {
		if got := resp.Header.Get(header); !strings.Contains(got, want) {
			t.Errorf("%s is %q, want %s in it", header, got, want)
		}
	}
}

func readBody(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}
