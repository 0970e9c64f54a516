package remote_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
)

// TestEntries checks that a list is decoded up to its bound.
func TestEntries(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{`[]`: {}, `[1, 2]`: {1, 2}, `null`: nil, `[1, 2, 3]`: nil, `{"a": 1}`: nil, `[1, "a"]`: nil} {
		e := remote.NewEntries[int](2)
		err := json.Unmarshal([]byte(text), &e)
		if bad := want == nil && text != "null"; bad != (err != nil) {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, e.List); !bad && diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	var e remote.Entries[int]
	if err := json.Unmarshal([]byte("["+strings.Repeat("1,", remote.MaxMatches)+"1]"), &e); err == nil {
		t.Error("the zero value has no bound")
	}
}

// TestAnswerMemory checks that an answer is not read for which the app has no memory, with an error that is not one of the
// store.
func TestAnswerMemory(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"a": "` + strings.Repeat("x", 1<<20) + `"}`))
	}))
	t.Cleanup(server.Close)
	o := remotetest.NewOptions(t, server.Listener.Addr().String())
	o.Tenant, o.Memory = "acme", capacity.NewPool(4<<20, nil)
	c := remote.NewClient("kind", o, 1, http.Header{})
	var out map[string]any
	err := c.Call(t.Context(), http.MethodGet, "/", nil, &out, 8<<20)
	if !errors.Is(err, agentsvc.CodeTooLarge) {
		t.Errorf("an answer above the app's share is read: %v", err)
	}
}
