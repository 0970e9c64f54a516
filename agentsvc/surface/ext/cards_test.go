package ext_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
)

// newManyAgentsConfig returns a configuration of n agents with the same description.
func newManyAgentsConfig(n int, description string) string {
	var doc strings.Builder
	doc.WriteString("llms: {m: {provider: scripted}}\nagents:\n")
	for i := range n {
		fmt.Fprintf(&doc, "  a%d: {llm: m, description: '%s'}\n", i, description)
	}
	return doc.String()
}

// TestCardListIsBounded checks that the list of an app's cards, which anybody may request, is at most a few MiB.
func TestCardListIsBounded(t *testing.T) {
	t.Parallel()
	const maximum = 6 << 20 // bytes
	h := surfacetest.New(t, surfacetest.Options{}, func(*surfacetest.Fixture) []surface.Route { return ext.Routes(ext.Options{}) })
	for i, c := range []struct {
		agents, size int
		taken        bool
	}{{2000, 480, true}, {120, 8000, true}, {1, 8192, true}, {2000, 1800, false}, {3500, 1, false}, {1, 8193, false}, {200, 8000, false}} {
		doc := newManyAgentsConfig(c.agents, strings.Repeat("x", c.size))
		_, err := config.Parse([]byte(doc), config.Options{Tenant: true})
		if accepted := err == nil; accepted != c.taken {
			t.Errorf("%d agents with %d bytes each: %.300v", c.agents, c.size, err)
		}
		if err != nil {
			continue
		}
		app := fmt.Sprint("app", i)
		h.CreateApp(t, app, doc)
		resp, err := http.Get(h.URL + "/apps/" + app + "/agents")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		var list struct {
			Agents []struct{ Name string }
			Total  int
		}
		if err := json.Unmarshal(body, &list); err != nil || len(list.Agents) != c.agents || list.Total != c.agents {
			t.Errorf("%d agents of %d, total %d, %v", len(list.Agents), c.agents, list.Total, err)
		}
		if len(body) > maximum {
			t.Errorf("the list of %d agents with %d bytes each has %d bytes, want at most %d", c.agents, c.size, len(body), maximum)
		}
		t.Logf("%d agents with %d bytes each: %d bytes", c.agents, c.size, len(body))
	}
}
