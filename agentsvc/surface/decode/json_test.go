package decode

import (
	"errors"
	"testing"

	"stoa/agentsvc/surface/apierror"
)

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	type inner struct {
		N int `json:"n"`
	}
	type item struct {
		Amount int              `json:"amount"`
		Inner  map[string]inner `json:"inner"`
	}
	type shared struct {
		Page   int                `json:"page"`
		Labels map[string]string  `json:"labels"`
		Prices map[string]inner   `json:"prices"`
		Nested []map[string][]int `json:"nested"`
	}
	type body struct {
		shared
		A     inner  `json:"a"`
		Items []item `json:"items"`
	}
	tests := []struct {
		name, json, want string
		strict           bool
	}{
		{"good", `{"a": {"n": 1}}`, "", true},
		{"unknown member passed over", `{"b": 1}`, "", false},
		{"unknown member", `{"b": 1}`, "b: is not a known field", true},
		{"misspelt", `{"itms": []}`, `itms: is not a known field (did you mean "items"?)`, true},
		{"misspelt below", `{"items": [{}, {"inner": {"x": {"n": 1}, "y": {"nn": 1}}}]}`, `items[1].inner.y.nn: is not a known field`, true},
		{"type below", `{"a": {"n": 1}, "items": [{"amount": 7}, {"amount": 1.5}]}`, "items[1].amount: must be a whole number, not a JSON number 1.5", true},
		{"type of an item", `{"items": [{"amount": 7}, []]}`, "items[1]: must be an object, not a JSON array", true},
		{"type", `{"a": {"n": "x"}}`, "a.n: must be a whole number, not a JSON string", true},
		{"type of what structs share", `{"page": "x"}`, "page: must be a whole number, not a JSON string", true},
		{"type of an entry", `{"labels": {"a": "x", "b.c": 1}}`, "labels.b.c: must be a text in quotes, not a JSON number", true},
		{"type of an entry below", `{"items": [{}, {"inner": {"x": {"n": "1"}}}]}`, "items[1].inner.x.n: must be a whole number, not a JSON string", true},
		{"type in an entry of what structs share", `{"prices": {"x": {"n": 1}, "y": {"n": "1"}}}`, "prices.y.n: must be a whole number, not a JSON string", true},
		{"type in lists of what structs share", `{"nested": [{}, {"x": [1, true]}]}`, "nested[1].x[1]: must be a whole number, not a JSON bool", true},
		{"type in another case", `{"Prices": {"x": {"n": "1"}}}`, "prices.n: must be a whole number, not a JSON string", true},
		{"syntax", `{"a" 1}`, "not JSON at byte 6: invalid character '1' after object key", true},
		{"cut off", `{"a": {`, "the JSON ends too early", true},
		{"empty", ``, "the JSON is empty: it must be an object", true},
		{"no UTF-8", "{\"b\": \"\xc3\xa4\xff\"}", "the JSON is not UTF-8 at byte 9", false},
		{"more", `{} {}`, "there is more after the JSON value", true},
	}
	// What is wrong with all others is in JSON, and an invalid argument.
	notJSON := map[string]bool{"syntax": true, "cut off": true, "empty": true, "no UTF-8": true, "more": true}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var v body
			got := ""
			err := JSON([]byte(tt.json), &v, tt.strict)
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("DecodeJSON = %q, want %q", got, tt.want)
			}
			if is, want := errors.Is(err, apierror.CodeNotJSON), notJSON[tt.name]; is != want {
				t.Errorf("%v: not JSON: %t, want %t", err, is, want)
			}
		})
	}
}

func TestCheckMembers(t *testing.T) {
	t.Parallel()
	type setting struct {
		Blocking bool `json:"blocking"`
	}
	type shared struct {
		Tenant string `json:"tenant"`
	}
	type params struct {
		shared
		Message map[string]any `json:"message"`
		Setting *setting       `json:"configuration"`
	}
	for object, want := range map[string]string{
		`{"tenant": "a", "message": {"any": 1}, "configuration": {"blocking": true}}`: "",
		`{}`: "", `{"configuration": null}`: "", `[1]`: "", `{`: "",
		`{"mesage": {}}`:                        `mesage: is not a known field (did you mean "message"?)`,
		`{"xyz": 1}`:                            "xyz: is not a known field",
		`{"configuration": {"blokcing": 1}}`:    `configuration.blokcing: is not a known field (did you mean "blocking"?)`,
		`{"configuration": {"Blocking": true}}`: `configuration.Blocking: is not a known field (did you mean "blocking"?)`,
	} {
		got := ""
		if err := CheckMembers([]byte(object), &params{}, "configuration"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
}
