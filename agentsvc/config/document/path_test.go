package document

import "testing"

func TestPath(t *testing.T) {
	t.Parallel()
	tool := (*Path)(nil).Field("tools").Name("my.tool")
	item := tool.Field("args").Item(3)
	for _, test := range []struct {
		p                  *Path
		text, entry, match string
	}{
		{tool.Parent, "tools", "tools", "tools"},
		{tool, "tools.my.tool", "tools.my.tool", "tools.*"},
		{item.Parent, "tools.my.tool.args", "tools.my.tool", "tools.*.args"},
		{item, "tools.my.tool.args[3]", "tools.my.tool", ""},
		{tool.Name("a\nb"), `tools.my.tool."a\nb"`, "tools.my.tool", "tools.*.*"},
	} {
		if got := test.p.String(); got != test.text {
			t.Errorf("text %s, want %s", got, test.text)
		}
		if got := test.p.Entry(); got != test.entry {
			t.Errorf("%s: entry %s, want %s", test.text, got, test.entry)
		}
		for _, pattern := range []string{"tools", "tools.*", "tools.*.args", "tools.*.*", "ools.*", "agents.*", "args", "*", ".tools", ""} {
			if got := test.p.Matches(pattern); got != (pattern == test.match && pattern != "") {
				t.Errorf("%s matches %q: %v", test.text, pattern, got)
			}
		}
	}
}
