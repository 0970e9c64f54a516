package billingapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface/surfacetest"
)

// TestPartyChanges checks that the audit trail has the fields of a party that changed, with hashes by which equal values can be
// recognised, and none of the values.
func TestPartyChanges(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", "llms: {m: {provider: scripted}}\nagents: {clerk: {llm: m}}")
	type change struct{ Before, After string }
	for _, path := range []string{"/admin/seller", "/admin/apps/acme/buyer"} {
		for _, body := range []string{
			`{"name": "Agents Ltd", "address": ["1 Porch"]}`, `{"name": "Agents GmbH", "address": ["1 Porch"], "tax_id": "DE1"}`, `{"name": "Agents Ltd", "tax_id": "DE1"}`,
		} {
			if resp, text := h.Do(t, http.MethodPut, path, surfacetest.Secret, body, "Content-Type", "application/json"); resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
			}
		}
		_, action, _ := strings.Cut(path, "/admin/")
		action = "invoice." + action[strings.LastIndex(action, "/")+1:]
		_, text := h.Do(t, http.MethodGet, "/admin/audit?action="+action, surfacetest.Secret, nil)
		var trail struct {
			Entries []struct {
				Detail struct{ Changes map[string]change }
			}
		}
		if err := json.Unmarshal([]byte(text), &trail); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(trail.Entries) != 3 || strings.Contains(text, "Agents") || strings.Contains(text, "Porch") || strings.Contains(text, "DE1") {
			t.Fatalf("%s: %s", action, text)
		}
		var changed [][]string
		for _, e := range slices.Backward(trail.Entries) {
			changed = append(changed, slices.Sorted(maps.Keys(e.Detail.Changes)))
		}
		if diff := cmp.Diff([][]string{{"address", "name"}, {"name", "tax_id"}, {"address", "name"}}, changed); diff != "" {
			t.Errorf("%s (-want +got):\n%s", action, diff)
		}
		first, second, third := trail.Entries[2].Detail.Changes, trail.Entries[1].Detail.Changes, trail.Entries[0].Detail.Changes
		name := first["name"].After
		if name == "" || first["name"].Before != "" || second["name"].Before != name || second["name"].After == name || third["name"].After != name || third["address"] != (change{Before: first["address"].After}) {
			t.Errorf("%s: %v, then %v, then %v", action, first, second, third)
		}
	}
}
