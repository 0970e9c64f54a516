package function

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/pattern"
)

// TestConvertHTML converts the elements that pages consist of.
func TestConvertHTML(t *testing.T) {
	t.Parallel()
	base, _ := url.Parse("https://host/docs/page")
	long := strings.Repeat("x", maxTokenBytes)
	for _, c := range []struct{ name, page, want string }{
		{"paragraphs", "<p>one\n two<p>three</p>four<br>five<hr>", "one two\n\nthree\n\nfour  \nfive\n\n* * *"},
		{"marks", "A <b> bold <i>and</i> </b>text, <b></b><em>x</em>.", "A **bold *and*** text, *x*."},
		{"marks over paragraphs", "<b>a<p>b</b>", "**a**\n\n**b**"},
		{"not closed", "<b>a <i>b", "**a *b***"},
		{"code", "a <code>b  `c`</code> <kbd>d</kbd>", "a `` b `c` `` `d`"},
		{"lines of code", "<pre><code class='x language-go'>if a &lt; b {\n\n}\n</code></pre>x", "```go\nif a < b {\n\n}\n```\n\nx"},
		{"code with a fence", "<pre>```</pre>", "````\n```\n````"},
		{"headings", "<h1>A</h1><h3>B <a href=/c>c</a></h4>d", "# A\n\n### B [c](https://host/c)\n\nd"},
		{"links", `<a href="a b(1)"><img src=i.png alt="a  b"></a> <a name=x>y</a> <a href=z></a>`, "[![a b](https://host/docs/i.png)](https://host/docs/a%20b%281%29) y"},
		{"lists", "<ul><li>a<ol start=3><li>b<li>c</ol><li>d</ul>e", "- a\n  3. b\n  4. c\n- d\n\ne"},
		{"quotes", "a<blockquote><p>b<p>c<br>d</blockquote>e", "a\n\n> b\n>\n> c  \n> d\n\ne"},
		{"escapes", "&lt;b&gt; &amp; &uuml;", "&lt;b&gt; & ü"},
		{"hidden", "<title>t</title><style>s</style><script>'<p>'</script><!-- c -->a<noscript>n</noscript><template><p>x</template>b", "ab"},
		{"a script without end", "a<script>x</p>", "a"},
		{"long script and tag", "a<script>" + long + "<p>" + long + "</p></SCRIPT >b<p title='" + long + "'>c<p>d", "abc\n\nd"},
		{"long end of a script", "a<script/>x</script" + strings.Repeat(" ", maxTokenBytes) + ">b", "ab"},
		{"long text", "<p>" + long + long + "&amp;", long + long + "&"},
		{
			"table", "<table><caption>n</caption><tr><th>a<th>b<tr><td rowspan=2>1<td> <p>2</p>|<p>3<tr><td>4<tr><td colspan=2><code>5</code></table>c",
			"n\n\n| a | b |\n|---|---|\n| 1 | 2 \\| 3 |\n|  | 4 |\n| `5` |  |\n\nc",
		},
		{"layout", "<table role=presentation><tr><td>a<td>b<tr><td><table><tr><td>1</table></table>c", "a b\n\n| 1 |\n|---|\n\nc"},
		{"list in a table", "<table><tr><td><ul><li>a</ul><td>b</table>", "- a\n\nb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := convertHTML(pattern.NewStepBudget(t.Context(), "", 0), c.page, base, 1<<20)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v, want - got +\n%.2000s", err, diff)
			}
		})
	}
}

// TestConvertHTMLEndsWithContext checks that a conversion checks its context once for each slice of steps, and ends at
// the first check after the context's end.
func TestConvertHTMLEndsWithContext(t *testing.T) {
	t.Parallel()
	base, _ := url.Parse("https://host/")
	page := strings.Repeat("<p>text ", 1<<20/8)
	ctx := &countingContext{Context: t.Context(), endsAfter: 1 << 30}
	if _, err := convertHTML(pattern.NewStepBudget(ctx, "", 0), page, base, len(page)); err != nil || ctx.looks < 2*len(page)/pattern.SliceSteps {
		t.Errorf("%v after %d looks, want %d looks", err, ctx.looks, 2*len(page)/pattern.SliceSteps)
	}
	ctx = &countingContext{Context: t.Context(), endsAfter: 100}
	if got, err := convertHTML(pattern.NewStepBudget(ctx, "", 0), page, base, len(page)); !errors.Is(err, context.Canceled) || got != "" || ctx.looks != 100 {
		t.Errorf("%v after %d looks and %d bytes", err, ctx.looks, len(got))
	}
}

// countingContext is a context that ends after a number of checks.
type countingContext struct {
	context.Context
	endsAfter, looks int
}

func (c *countingContext) Err() error {
	if c.looks++; c.looks >= c.endsAfter {
		return context.Canceled
	}
	return nil
}
