package decode

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
)

// TestCountJSON checks the number of values that is counted, in one piece and byte by byte, and that too many are
// refused.
func TestCountJSON(t *testing.T) {
	t.Parallel()
	list := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	deep := func(list string) string { return `{"a":{"a":{"a":{"a":` + list + `}}}}` }
	for _, c := range []struct {
		name, body string
		least      int // values; 0 = the body is refused
	}{
		{"nothing", "", 1},
		{"a text with everything in it", `"[{,]}\\\",[\"{"`, 1},
		{"an object", `{"a":1,"b":[1,2,{}]}`, 6},
		{"a list of parts at its bound", `{"params":{"message":{"parts":` + list(MaxList, "0") + `}}}`, MaxList},
		{"and beyond", `{"params":{"message":{"parts":` + list(MaxList+1, "0") + `}}}`, 0},
		{"a longer list in data", deep(list(MaxList*2, "0")), 2 * MaxList},
		{"too many values", deep(list(MaxValues+1, "0")), 0},
		{"too many empty objects", deep(list(MaxValues/2+1, "{}")), 0},
		{"too many members", deep("{" + strings.Repeat(`"":0,`, MaxValues) + `"":0}`), 0},
		{"brackets that close nothing", strings.Repeat("]", 100) + "[,]", 3},
		{"a text that does not end", `{"a":"` + strings.Repeat(`\"`, 100), 2},
	} {
		n, err := CountValues([]byte(c.body))
		pieces := &CountingReader{Reader: iotest.OneByteReader(strings.NewReader(c.body))}
		if _, repeated := io.ReadAll(pieces); (repeated == nil) != (err == nil) || repeated == nil && pieces.Counter.TotalValues() != n {
			t.Errorf("%s: byte by byte %d values, %v, at once %d, %v", c.name, pieces.Counter.TotalValues(), repeated, n, err)
		}
		var reported *agentsvc.Error
		switch {
		case c.least > 0 && (err != nil || n < c.least):
			t.Errorf("%s: %d values, %v, want at least %d", c.name, n, err, c.least)
		case c.least == 0 && (!errors.As(err, &reported) || reported.Code != apierror.CodeBodyTooLarge || !strings.Contains(reported.Message, "allowed")):
			t.Errorf("%s: %v, want a refusal that says how many are allowed", c.name, err)
		}
	}
}

func TestCheckDepth(t *testing.T) {
	t.Parallel()
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	tests := []struct {
		name, body string
		ok         bool
	}{
		{"empty", ``, true},
		{"deepest", nest(64), true},
		{"too deep", nest(65), false},
		{"objects count too", strings.Repeat(`{"a":`, 100), false},
		{"side by side", "[" + strings.Repeat("[],", 1000) + "[]]", true},
		{"in a string", `"` + strings.Repeat("[", 1000) + `"`, true},
		{"behind an escaped quote", `"\"` + strings.Repeat("[", 1000) + `"`, true},
		{"behind an escaped backslash", `"\\",` + nest(65), false},
		{"closing brackets do not dig", strings.Repeat("]", 100) + nest(65), true},
		{"string that does not end", `"\`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := CountValues([]byte(tt.body)); (err == nil) != tt.ok {
				t.Errorf("countJSON = %v, want ok %v", err, tt.ok)
			}
		})
	}
}
