package config

import "testing"

func TestPath(t *testing.T) {
	t.Parallel()
	tool := &path{&path{nil, "tools", fieldPart}, "my.tool", namePart}
	item := &path{&path{tool, "args", fieldPart}, "3", itemPart}
	for _, test := range []struct {
		p                  *path
		text, entry, match string
	}{
		{tool.parent, "tools", "tools", "tools"},
		{tool, "tools.my.tool", "tools.my.tool", "tools.*"},
		{item.parent, "tools.my.tool.args", "tools.my.tool", "tools.*.args"},
		{item, "tools.my.tool.args[3]", "tools.my.tool", ""},
		{&path{tool, "a\nb", namePart}, `tools.my.tool."a\nb"`, "tools.my.tool", "tools.*.*"},
	} {
		if got := test.p.String(); got != test.text {
			t.Errorf("text %s, want %s", got, test.text)
		}
		if got := test.p.entryPath(); got != test.entry {
			t.Errorf("%s: entry %s, want %s", test.text, got, test.entry)
		}
		for _, pattern := range []string{"tools", "tools.*", "tools.*.args", "tools.*.*", "ools.*", "agents.*", "args", "*", ".tools", ""} {
			if got := test.p.matchesPattern(pattern); got != (pattern == test.match && pattern != "") {
				t.Errorf("%s matches %q: %v", test.text, pattern, got)
			}
		}
	}
}
