package document

import "testing"

// TestPath checks how a path is written.
func TestPath(t *testing.T) {
	t.Parallel()
	tool := (*Path)(nil).Field("tools").Name("my.tool")
	item := tool.Field("args").Item(3)
	for _, test := range []struct {
		p    *Path
		text string
	}{
		{tool.Parent, "tools"},
		{tool, "tools.my.tool"},
		{item.Parent, "tools.my.tool.args"},
		{item, "tools.my.tool.args[3]"},
		{tool.Name("a\nb"), `tools.my.tool."a\nb"`},
	} {
		if got := test.p.String(); got != test.text {
			t.Errorf("text %s, want %s", got, test.text)
		}
	}
}
