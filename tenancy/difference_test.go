package tenancy

import (
	"encoding/json"
	"testing"
)

func TestDifference(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ was, now, before, after string }{
		"same":            {`{"a":1}`, `{"a":1}`, `null`, `null`},
		"value":           {`{"a":1,"b":2}`, `{"a":1,"b":3}`, `{"b":2}`, `{"b":3}`},
		"deep":            {`{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":1,"d":3}}}`, `{"a":{"b":{"d":2}}}`, `{"a":{"b":{"d":3}}}`},
		"more":            {`{"a":{}}`, `{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":1}}`},
		"less":            {`{"a":{"b":1},"c":1}`, `{"c":1}`, `{"a":{"b":1}}`, `{}`},
		"list":            {`{"a":[1,2]}`, `{"a":[2,1]}`, `{"a":[1,2]}`, `{"a":[2,1]}`},
		"kind":            {`{"a":[1]}`, `{"a":{"b":1}}`, `{"a":[1]}`, `{"a":{"b":1}}`},
		"null":            {`{"a":null}`, `{}`, `{"a":null}`, `{}`},
		"secret":          {`{"m":{"key":"one","x":1}}`, `{"m":{"key":"two","x":1}}`, `{"m":{"key":"***"}}`, `{"m":{"key":"***"}}`},
		"secret in lists": {`{"l":[{"key":"one"}]}`, `{"l":[{"key":"two"}]}`, `{"l":[{"key":"***"}]}`, `{"l":[{"key":"***"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was, now := read(t, tt.was), read(t, tt.now)
			before, after, differs := difference(was, now, hideKeys(was), hideKeys(now))
			if differs != (tt.before != "null") {
				t.Errorf("differs = %v", differs)
			}
			if got, err := json.Marshal(before); err != nil || string(got) != tt.before {
				t.Errorf("before: %s, want %s", got, tt.before)
			}
			if got, err := json.Marshal(after); err != nil || string(got) != tt.after {
				t.Errorf("after: %s, want %s", got, tt.after)
			}
		})
	}
}

func read(t *testing.T, src string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(src), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func hideKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, x := range v {
			if m[k] = hideKeys(x); k == "key" {
				m[k] = "***"
			}
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, x := range v {
			l[i] = hideKeys(x)
		}
		return l
	}
	return v
}
