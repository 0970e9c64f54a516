package tenancy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"stoa/tenancy/keyring"
)

// TestChanges compares two documents: the differing paths are listed, with equal hashes for equal values, and a value
// cannot be found from its hash without the key.
func TestChanges(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ was, now, want string }{
		"same":  {`{"a":1}`, `{"a":1}`, ``},
		"value": {`{"a":1,"b":2}`, `{"a":1,"b":3}`, `b:ba`},
		"more":  {`{"a":1}`, `{"a":1,"b":1}`, `b:a`},
		"less":  {`{"a":1,"b":1}`, `{"a":1}`, `b:b`},
		"null":  {`{"a":null}`, `{}`, `a:b`},
		"list":  {`{"a":[1,2]}`, `{"a":[2,1]}`, `a:ba`},
		"all":   {`{}`, `{"a":1,"b":{"c":2}}`, `a:a b:a`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChangeSet(newHasher(t))
			c.compareValues(decodeDocument(t, tt.was), decodeDocument(t, tt.now))
			var got []string
			for _, path := range slices.Sorted(maps.Keys(c.paths)) {
				hashes := c.paths[path].(map[string]any)
				word := path + ":"
				for _, side := range []string{"before", "after"} {
					if h, ok := hashes[side]; ok && strings.HasPrefix(h.(string), "hmac-sha256:") {
						word += side[:1]
					}
				}
				if hashes["before"] == hashes["after"] {
					t.Errorf("%s: the same hash before and after", path)
				}
				got = append(got, word)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("changes %q, want %q", got, tt.want)
			}
		})
	}
}

// TestChangesBound checks that an entry lists maxChangedPaths paths and counts the others.
func TestChangesBound(t *testing.T) {
	t.Parallel()
	doc := map[string]any{}
	for i := range maxChangedPaths + 7 {
		doc[fmt.Sprintf("p%04d", i)] = i
	}
	c, detail := newChangeSet(newHasher(t)), map[string]any{}
	c.compareValues(nil, doc)
	c.addToDetail(detail)
	if len(detail["changes"].(map[string]any)) != maxChangedPaths || detail["more_changes"] != 7 {
		t.Errorf("%d changes and %v more", len(c.paths), detail["more_changes"])
	}
}

func newHasher(t *testing.T) keyring.Hasher {
	t.Helper()
	k, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	h, err := k.DeriveHasher("test")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func decodeDocument(t *testing.T, src string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(src), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
