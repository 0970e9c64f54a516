package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestDocumentMemory reads documents that are meant to take many times their size. The memory allocated for one,
// including what is freed meanwhile, is at most 4 times its size and 40 MiB. The test is not parallel: it counts the
// allocations of the process.
func TestDocumentMemory(t *testing.T) {
	pairs := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for _, test := range []struct{ name, src, want string }{
		{"unknown keys on lines", pairs("%x:\n", 98_000), "more than 80000 values"},
		{"unknown keys on lines below the bound", pairs("%x:\n", 39_000), "is not a known key"},
		{"unknown keys with question marks", pairs("? %x\n", 98_000), "more than 80000 values"},
		{"unknown keys of JSON", "{" + strings.TrimSuffix(pairs(`"%x":1,`, 39_000), ",") + "}", "is not a known key"},
		{"unknown keys of one model", "llms: {m: {" + pairs("%x: 1,", 39_000) + "}}", "is not a known key"},
		{"agents without a value", "agents:\n" + pairs(" %x:\n", 39_000), "has 39000 entries, and may have 5000"},
		{"empty agents", "agents:\n" + pairs(" %x: {}\n", 4_900), "agents.0: has no model"},
		{"empty agents beyond the bound", "agents:\n" + pairs(" %x: {}\n", 24_000), "has 24000 entries, and may have 5000"},
		{"empty models", "llms:\n" + pairs(" %x: {}\n", 24_000), "has 24000 entries, and may have 5000"},
		{"empty tools", "tools:\n" + pairs(" %x: {}\n", 24_000), "has 24000 entries, and may have 5000"},
		{"empty skills", "agents: {a: {skills: [" + strings.Repeat("{},", 26_000) + "]}}", "id is needed"},
		{"empty notifications", "agents: {a: {notifications: [" + strings.Repeat("{},", 26_000) + "]}}", "id is needed"},
		{"empty script", "llms: {m: {provider: scripted, script: [" + strings.Repeat("{},", 26_000) + "]}}", "then is needed"},
		{"empty replies", "llms: {m: {provider: scripted, script: [{then: [" + strings.Repeat("{},", 26_000) + "]}]}}", "needs one of say"},
		{"anchors", "x: [" + pairs("&a%d a, ", 38_000) + "]", "is not a known key"},
		{"aliases", "x: &a [b]\ny: [" + strings.Repeat("*a,", 32_000) + "]", "is not a known key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse([]byte(test.src), Options{Tenant: true})
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %.300v, want %s", err, test.want)
			}
			got := after.TotalAlloc - before.TotalAlloc
			t.Logf("%.2f MiB take %.1f MiB", float64(len(test.src))/(1<<20), float64(got)/(1<<20))
			if want := uint64(4*len(test.src) + 40<<20); got > want && !raceDetector {
				t.Errorf("%d bytes take %d bytes, want at most %d", len(test.src), got, want)
			}
		})
	}
}
