package document

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// amendAll amends src: each text that contains hush becomes the mask, also in comments.
func amendAll(t *testing.T, src string) string {
	t.Helper()
	decoded, err := Decode([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := hideHush(decoded).(map[string]any)
	comment := func(text string) string { return strings.ReplaceAll(text, "hush", Mask) }
	out := Amend([]byte(src), want, comment)
	got, err := Decode(out)
	if err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("amended %s: -want +got:\n%s", out, diff)
	}
	return string(out)
}

func hideHush(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for key, x := range v {
			m[key] = hideHush(x)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = hideHush(x)
		}
		return list
	case string:
		if strings.Contains(v, "hush") {
			return Mask
		}
	}
	return v
}

func TestAmendKeepsTheText(t *testing.T) {
	t.Parallel()
	const mask = `"` + Mask + `"`
	for name, tt := range map[string]struct{ src, want string }{
		"nothing to change": {"# first\nb: 1 # one\n\na:   [x,y]\n", "# first\nb: 1 # one\n\na:   [x,y]\n"},
		"plain":             {"b: hush me # why\na: 1\n", "b: " + mask + " # why\na: 1\n"},
		"a plain text on two lines": {
			"b: hush\n  me, please\n# then\na: 1\n", "b: " + mask + "\n# then\na: 1\n",
		},
		"single quotes":       {"b: 'it''s # hush'\na: 1", "b: " + mask + "\na: 1"},
		"double quotes":       {`{"b": "hush \" # me", "a": "ü"}`, `{"b": ` + mask + `, "a": "ü"}`},
		"two on one line":     {"l: [hush, ü, hush one]\n", "l: [" + mask + ", ü, " + mask + "]\n"},
		"literal block":       {"b: |-\n  hush\n\n  # me\na: 1\n", "b: " + mask + "\na: 1\n"},
		"folded block":        {"a:\n  - >\n   hush\n   me\n  - x\n", "a:\n  - " + mask + "\n  - x\n"},
		"anchor and tag":      {"b: &x !!str hush\nc: *x\n", "b: &x !!str " + mask + "\nc: " + mask + "\n"},
		"merge key":           {"b: &x {k: hush}\nc: {<<: *x, a: 1}\n", "b: &x {k: " + mask + "}\nc: {<<: *x, a: 1}\n"},
		"windows' line ends":  {"b: hush\r\n# two\r\na: 1\r\n", "b: " + mask + "\r\n# two\r\na: 1\r\n"},
		"comments":            {"# hush\nb: 'a # hush'\na: |  # hush\n  # text\n", "# " + Mask + "\nb: " + mask + "\na: |  # " + Mask + "\n  # text\n"},
		"an empty value":      {"a:\nb:  # none\n  - hush\n", "a:\nb:  # none\n  - " + mask + "\n"},
		"a byte order mark":   {"\uFEFFb: hush # x\n", "\uFEFFb: " + mask + " # x\n"},
		"a sign in an anchor": {"a#b: hush#x\nc: 1 #d\n", "a#b: " + mask + "\nc: 1 #d\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, amendAll(t, tt.src)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestAmendFallsBack amends texts that cannot be kept: the result is JSON in the order of the text.
func TestAmendFallsBack(t *testing.T) {
	t.Parallel()
	if got, want := string(Amend([]byte("b: {x: 1}\na: 2\n"), map[string]any{"a": 2, "c": "<", "b": map[string]any{}}, strings.Clone)), `{"b":{},"a":2,"c":"<"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// What a mapping overrides stands in the text only, where it would not be found.
	if got, want := amendAll(t, "a: {<<: {k: hush}, k: 1}\n"), `{"a":{"k":1}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	utf16 := []byte{0xFF, 0xFE, 'b', 0, ':', 0, ' ', 0, 'h', 0}
	if got, want := string(Amend(utf16, map[string]any{"b": Mask}, strings.Clone)), `{"b":"`+Mask+`"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEncodeJSON(t *testing.T) {
	t.Parallel()
	decoded := map[string]any{"a": []any{map[string]any{"y": nil, "x": 1.5}}, "new": true, "b": "ü\n", "zz": 1, "first": 0}
	got := string(EncodeJSON(decoded, []byte("b: 1\na: [{x: 1, y: 2}]\ngone: 1"), []byte(`{"new": 1, "a": 2}`)))
	if want := `{"b":"ü\n","a":[{"x":1.5,"y":null}],"new":true,"first":0,"zz":1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzAmend checks that no text makes Amend panic and that its result always has the wanted values.
func FuzzAmend(f *testing.F) {
	for _, src := range []string{"a: hush # b\n", "{\"a\": [\"hush\"]}", "a: &x |-\n  hush\nb: *x\n", "? hush\n: - b\n"} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if decoded, err := Decode([]byte(src)); err == nil && len(decoded) > 0 {
			amendAll(t, src)
		}
	})
}

// TestAmendKeepsOneTree: a text is read twice to be amended, and the memory of the first tree is free while the second is
// in use. The test is not parallel: it measures the heap of the process.
func TestAmendKeepsOneTree(t *testing.T) {
	readHeap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // a size
	}
	var b strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&b, "a%d: {b: c, d: [e, f]}\n", i)
	}
	src := []byte("secret: hush\n" + b.String() + "# hush\nlast: x\n") // the comment is found before the last value
	decoded, err := Decode(src)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := hideHush(decoded).(map[string]any)
	measureTree := func() int64 {
		before := readHeap()
		tree := Read(src, nil, "")
		defer runtime.KeepAlive(tree)
		return readHeap() - before
	}
	oneTree := measureTree()
	before := readHeap()
	var inUse int64
	out := Amend(src, want, func(string) string { inUse = readHeap() - before; return "# " + Mask })
	if !strings.HasSuffix(string(out), "# "+Mask+"\nlast: x\n") || inUse == 0 {
		t.Fatal("the text is not amended")
	}
	t.Logf("one tree takes %.1f MiB, Amend has %.1f MiB", float64(oneTree)/(1<<20), float64(inUse)/(1<<20))
	if inUse > oneTree*3/2 {
		t.Errorf("%d bytes are in use, want at most one and a half trees of %d", inUse, oneTree)
	}
	runtime.KeepAlive(decoded)
}
