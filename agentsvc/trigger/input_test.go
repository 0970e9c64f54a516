package trigger_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/trigger"
)

// TestMessage checks the messages made of bodies.
func TestMessage(t *testing.T) {
	t.Parallel()
	push := `{"ref": "refs/heads/main", "id": 12345678901234567, "rate": 0.5, "commits": [{"by": "ana"}, {"by": "bob"}], "tags": ["a", "b"], "none": null}`
	pick := []trigger.Field{{Path: "commits.1.by", As: "author"}, {Path: "ref"}, {Path: "not.there"}}
	for _, c := range []struct {
		name, before, template string
		fields                 []trigger.Field
		kind, body             string
		want, wrong            string
	}{
		{name: "as it came", body: push, want: push},
		{name: "static", before: "Look at this.", body: `{"a": 1}`, want: "Look at this."},
		{name: "static, without a body", before: "Go.", want: "Go."},
		{name: "static, with a body of any type", before: "Go.", kind: "image/png", body: "\xff", want: "Go."},
		{name: "picked", before: "Look.", fields: pick, body: push, want: "Look.\n\n" + `{"author":"bob","ref":"refs/heads/main","there":null}`},
		{name: "template", template: `{{.ref}} {{.id}} {{.rate}} {{(index .commits 0).by}} {{len .commits}} {{join ", " .tags}}`, body: push, want: "refs/heads/main 12345678901234567 0.5 ana 2 a, b"},
		{name: "template in JSON", template: `{"text": {{json .ref}}}`, body: `{"ref": "say \"no\""}`, want: `{"text": "say \"no\""}`},
		{name: "template of what is picked", template: `{{.author}}: {{json .commits}} {{default "?" .there}}`, fields: pick, body: push, want: `bob: [{"by":"ana"},{"by":"bob"}] ?`},
		{name: "loop", template: `{{range $i, $c := .commits}}{{if $i}}, {{end}}{{$c.by | upper}}{{else}}nobody{{end}}`, body: push, want: "ANA, BOB"},
		{name: "comparison", template: `{{if and (gt .id 5) (eq .ref "refs/heads/main")}}yes{{else}}no{{end}}`, body: push, want: "yes"},
		{name: "a list", template: `{{len .payload}}`, body: `[1, 2, 3]`, want: "3"},
		{name: "a form", template: `{{.text}} from {{.user_name}}, {{join "+" .n}}`, kind: "application/x-www-form-urlencoded; charset=utf-8", body: "text=hi+there&user_name=ana&n=1&n=2", want: "hi there from ana, 1+2"},
		{name: "text", template: `Said: {{trim .payload}}`, kind: "text/plain", body: " hello ", want: "Said: hello"},
		{name: "other JSON", kind: "application/vnd.github+json", body: `{}`, want: "{}"},

		{name: "no JSON", body: `{"a": `, wrong: "body: is not JSON: unexpected EOF"},
		{name: "two values", body: `{} {}`, wrong: "body: holds more than one JSON value"},
		{name: "bytes", body: "\"\xff\"", wrong: "body: must be UTF-8 text without NUL"},
		{name: "a picture", kind: "image/png", body: "x", wrong: "Content-Type: must be JSON, application/x-www-form-urlencoded or text"},
		{name: "no kind at all", kind: "?;", body: "x", wrong: "Content-Type: is not one"},
		{name: "required", fields: []trigger.Field{{Path: "commits.2.by", Required: true}}, body: push, wrong: "body: has no commits.2.by"},
		{name: "nothing", wrong: "body: gives an empty message: send a body (by GET a query), or set the trigger's input"},
		{name: "template of nothing", template: `{{if .x}}x{{end}}`, body: `{}`, wrong: "body: gives an empty message: send a body (by GET a query), or set the trigger's input"},
		{name: "not a list", template: `{{join "" .ref}}`, body: push, wrong: "wrong type for value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in, err := trigger.NewInput("", c.before, c.template, c.fields)
			if err != nil {
				t.Fatal(err)
			}
			got, err := in.BuildMessage(t.Context(), c.kind, []byte(c.body))
			switch {
			case c.wrong == "" && (err != nil || got != c.want):
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("got %q (%v), want the error %q", got, err, c.wrong)
			}
		})
	}
}

// TestTemplateBounds checks that no template takes long or produces much, for any body.
func TestTemplateBounds(t *testing.T) {
	t.Parallel()
	large := `{"n": 1000000000000, "list": [` + strings.Repeat(`"x",`, 100_000) + `"x"]}`
	for _, c := range []struct{ name, template string }{
		{"counts far", `{{range 1000000000000}}{{end}}`},
		{"counts as far as it is sent", `{{range .n}}{{end}}`},
		{"loops in loops", `{{range .list}}{{range $.list}}{{end}}{{end}}`},
		{"doubles", `{{$x := "xx"}}{{range 100}}{{$x = print $x $x}}{{end}}`},
		{"says much", `{{range .list}}{{json $.n}}{{end}}`},
		{"works much", strings.Repeat(`{{$x := join "" .list}}`, 2000)},
		{"joins much", `{{join "0123456789" .list}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in, err := trigger.NewInput("", "", c.template, nil)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			got, err := in.BuildMessage(t.Context(), "", []byte(large))
			if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "it exceeds the limits of templates") || took > 8*time.Second {
				t.Errorf("%d bytes and %v after %v", len(got), err, took)
			}
		})
	}
	for template, want := range map[string]string{
		`{{printf "%1000000000d" 1}}`:                 "printf",
		`{{define "x"}}{{end}}{{template "x"}}`:       "another template",
		`{{block "x" .}}{{end}}`:                      "another template",
		`{{call .x}}`:                                 "calls call",
		`{{if .x}}{{with html .y}}{{end}}{{end}}`:     "calls html",
		`{{range (js .x).y}}{{end}}`:                  "calls js",
		`{{.a`:                                        "unclosed action",
		`{{print` + strings.Repeat(" .a", 256) + `}}`: "more than 256 arguments",
		`{{if eq .a (or ` + strings.Repeat(" .a", 256) + `)}}{{end}}`: "more than 256 arguments",
		`{{nonsense}}`:                "nonsense",
		strings.Repeat("x", 64<<10+1): "longer than",
	} {
		if _, err := trigger.NewInput("", "", template, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want something of %s", template, err, want)
		}
	}
}

// TestTemplateMemory: what the calls of an execution make is bounded together, whether it is kept by one action or by
// many variables.
func TestTemplateMemory(t *testing.T) { // measures all that is allocated, and so runs alone
	body := []byte(`{"x": "` + strings.Repeat("a", 200_000) + `", "list": [` + strings.Repeat(`"",`, 50_000) + `""]}`)
	for name, template := range map[string]string{
		"arguments": "{{print" + strings.Repeat(" (json .x)", 80) + "}}",
		"variables": strings.Repeat("{{$v := upper .x}}", 200),
		"branches":  strings.Repeat("{{if upper .x}}{{end}}", 200),
		"lists":     "{{len (print" + strings.Repeat(` (join "" .list)`, 60) + ")}}",
	} {
		in, err := trigger.NewInput("", "", template, nil)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := in.BuildMessage(t.Context(), "", body)
		runtime.ReadMemStats(&after)
		const maximum = 16 << 20
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maximum || err == nil || !strings.Contains(err.Error(), "it exceeds the limits of templates") {
			t.Errorf("%s: %d KiB are allocated, at most %d KiB may be; %d bytes and %v", name, allocated>>10, maximum>>10, len(got), err)
		}
	}
}

// TestTemplateEndsWithContext: an execution ends with its context, which it looks at once for every slice of steps. It is not
// parallel, because an execution may last a second.
func TestTemplateEndsWithContext(t *testing.T) {
	tpl, err := trigger.ParseTemplate("", `{{range 13000}}{{end}}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx := &endingContext{Context: t.Context(), endsAfter: 1 << 30}
	if _, err := tpl.RenderText(ctx, nil); err != nil || ctx.looks < 20 {
		t.Errorf("%v after %d looks", err, ctx.looks)
	}
	ctx = &endingContext{Context: t.Context(), endsAfter: 10}
	if _, err := tpl.RenderText(ctx, nil); !errors.Is(err, context.Canceled) || ctx.looks > 12 {
		t.Errorf("%v after %d looks", err, ctx.looks)
	}
}

// endingContext is a context that has ended after some looks at it.
type endingContext struct {
	context.Context
	endsAfter, looks int
}

func (c *endingContext) Err() error {
	if c.looks++; c.looks >= c.endsAfter {
		return context.Canceled
	}
	return nil
}
