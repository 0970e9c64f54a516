package store

import (
	"encoding/json"
	"strings"
	"testing"

	"stoa/agentsvc"
)

// TestEncodeLarge: a large event is encoded as encoding/json does, with the same order of members, without escapes
// that JSON does not require.
func TestEncodeLarge(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("<b>&\"\\\n\u2028 ä \x00", streamThreshold/16)
	m := agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Metadata: map[string]any{"z": 1.5, "a": []any{nil, 1e21, 1e-7, "<"}, "m": map[string]any{}}, Parts: []agentsvc.Part{
		{Text: text}, {File: &agentsvc.File{Name: "f", Bytes: []byte(text)}}, {Data: &agentsvc.Data{Value: map[string]any{"b": []any{}, "a": json.Number("12")}}},
	}}
	b := eventBody{State: "submitted", Message: fromMessage(&m)}
	want := encodeUnescaped(t, b)
	if encodedSize(&m) < streamThreshold {
		t.Fatalf("the message has %d bytes", encodedSize(&m))
	}
	kind, got, err := encodeEvent(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &m}})
	if err != nil || kind != kindStatus || got != want {
		t.Errorf("%s, %v: %d bytes are not the %d that encoding/json writes", kind, err, len(got), len(want))
	}
	entries, err := encodeEntries([]agentsvc.Entry{{Message: &m}})
	if want := encodeUnescaped(t, []entryBody{{Message: fromMessage(&m)}}); err != nil || entries != want {
		t.Errorf("entries: %v, %d bytes, want %d", err, len(entries), len(want))
	}
}

// encodeUnescaped returns what [json.Marshal] returns, without escapes that JSON does not require.
func encodeUnescaped(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), `\u2028`, "\u2028")
}
