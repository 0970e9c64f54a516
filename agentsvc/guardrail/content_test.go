package guardrail_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/guardrail"
)

func TestKeywords(t *testing.T) {
	t.Parallel()
	content := func(words ...string) *guardrail.Guardrail {
		return rail(t, guardrail.Options{Output: guardrail.Output{Content: &guardrail.Content{Rule: act(guardrail.Modify), Keywords: words}}})
	}
	for _, tt := range []struct {
		words      []string
		text, want string
	}{
		{[]string{"falcon"}, "Falcon, FALCON; falcons, afalcon falcon_", "[removed], [removed]; falcons, afalcon falcon_"},
		{[]string{"a b", "b cd", "b"}, "a b cde, xa b, b cd", "[removed] cde, xa [removed], [removed]"},
		{[]string{" top  secret "}, "top secret, Top\n\tSecret, topsecret", "[removed], [removed], topsecret"},
		{[]string{"straße"}, "STRASSE Straße STRAßE", "STRASSE [removed] [removed]"},
		{[]string{"cafe", "café"}, "cafés café cafe\u0301 cafe", "cafés [removed] cafe\u0301 [removed]"},
		{[]string{"秘密", "AI"}, "这是秘密文件用AI做", "这是[removed]文件用[removed]做"},
		{[]string{"C++", "$$"}, "C++ and C+++ pay $$$", "[removed] and [removed]+ pay [removed]"},
		{[]string{"a.c"}, "abc a.c", "abc [removed]"},
	} {
		if got := judge(content(tt.words...), tt.text); got.text() != tt.want {
			t.Errorf("%q: %q became %q, want %q", tt.words, tt.text, got.text(), tt.want)
		}
	}
}

// TestFindings: what is told of an answer, once for each check, as far as it was looked at.
func TestFindings(t *testing.T) {
	t.Parallel()
	const text = "falcon bob@x.org falcon 4111111111111111"
	for _, tt := range []struct {
		o     guardrail.Output
		found string
		want  string
	}{
		{guardrail.Output{PII: &everything, Content: &guardrail.Content{Rule: act(guardrail.Warn), Keywords: []string{"falcon"}}},
			"output.content=warn output.pii=modify", "falcon ***@*.*** falcon ****************"},
		{guardrail.Output{PII: &everything, Content: &guardrail.Content{Keywords: []string{"falcon"}}},
			"output.content=block", `The answer was withheld by the guardrail "house" (output.content).`},
		{guardrail.Output{PII: &guardrail.PII{Rule: act(guardrail.Block), Email: true}, Content: &guardrail.Content{Rule: act(guardrail.Allow), Keywords: []string{"falcon"}}},
			"output.content=allow output.pii=block", "falcon \n\nThe rest of the answer was withheld by the guardrail \"house\" (output.pii)."},
		{guardrail.Output{CollectAll: true, PII: &everything, Content: &guardrail.Content{Keywords: []string{"falcon"}}},
			"output.content=block output.pii=modify", `The answer was withheld by the guardrail "house" (output.content).`},
	} {
		got := judge(rail(t, guardrail.Options{Output: tt.o}), text)
		if checks(got.Found) != tt.found || got.text() != tt.want {
			t.Errorf("found %q, want %q\npassed %q, want %q", checks(got.Found), tt.found, got.text(), tt.want)
		}
	}
}

func update(more, last bool, parts ...agentsvc.Part) agentsvc.ArtifactUpdate {
	return agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "x", Name: "x", Parts: parts}, Append: more, Last: last}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	text := agentsvc.TextPart
	data := func(v any) agentsvc.Part { return agentsvc.Part{Data: &agentsvc.Data{Value: v}} }
	file := func(s string) agentsvc.Part {
		return agentsvc.Part{File: &agentsvc.File{MediaType: "text/csv", Bytes: []byte(s)}}
	}
	picture := agentsvc.Part{File: &agentsvc.File{MediaType: "image/png", Bytes: []byte("bob@x.org")}}
	redact := guardrail.Options{Output: guardrail.Output{PII: &everything}}
	tests := []struct {
		name     string
		in, want []agentsvc.ArtifactUpdate
	}{
		{"in one piece", []agentsvc.ArtifactUpdate{update(false, true, text("to bob@x.org"))}, []agentsvc.ArtifactUpdate{update(false, true, text("to ***@*.***"))}},
		{"across updates", []agentsvc.ArtifactUpdate{update(false, false, text("to bo")), update(true, false, text("b@x.o")), update(true, true, text("rg now"))},
			[]agentsvc.ArtifactUpdate{update(false, false, text("to ")), update(true, true, text("***@*.*** now"))}},
		{"kept back at first", []agentsvc.ArtifactUpdate{update(false, false, text("bob@x")), update(true, true, text("!"))},
			[]agentsvc.ArtifactUpdate{update(false, true, text("bob@x!"))}},
		{"without an end", []agentsvc.ArtifactUpdate{update(false, false, text("to bob@x.or"))},
			[]agentsvc.ArtifactUpdate{update(false, false, text("to ")), update(true, false, text("***@*.**"))}},
		{"begun earlier", []agentsvc.ArtifactUpdate{update(true, true, text("bob@x.org"))}, []agentsvc.ArtifactUpdate{update(true, true, text("***@*.***"))}},
		{"replaced", []agentsvc.ArtifactUpdate{update(false, false, text("a bob@x.or")), update(false, true, text("g"))},
			[]agentsvc.ArtifactUpdate{update(false, false, text("a ")), update(false, true, text("g"))}},
		{"other parts", []agentsvc.ArtifactUpdate{update(false, true, text("bob"), data(map[string]any{"bob@x.org": []any{"bob@x.org", 1.0}}), file("a,bob@x.org"), picture, text("@x.org"))},
			[]agentsvc.ArtifactUpdate{update(false, true, text("bob"), data(map[string]any{"***@*.***": []any{"***@*.***", 1.0}}), file("a,***@*.***"), picture, text("@x.org"))}},
		{"nothing in it", []agentsvc.ArtifactUpdate{update(false, false), update(true, true)}, []agentsvc.ArtifactUpdate{update(false, false), update(true, true)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := rail(t, redact).Answer(context.Background())
			var got []agentsvc.ArtifactUpdate
			for _, u := range tt.in {
				got = append(got, a.Artifact(u).Artifacts...)
			}
			got = append(got, a.End().Artifacts...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
	a := rail(t, redact).Answer(context.Background())
	named := update(false, true, text("x"))
	named.Artifact.Name, named.Artifact.Description, named.Artifact.Metadata = "bob@x.org.txt", "of bob@x.org", map[string]any{"by": "bob@x.org"}
	got := a.Artifact(named).Artifacts[0].Artifact
	if got.Name != "***@*.***.***" || got.Description != "of ***@*.***" || got.Metadata["by"] != "***@*.***" {
		t.Errorf("around the parts: %+v", got)
	}
}

// TestArtifactBlocks: a blocked artifact ends the answer, and what was kept back of its text is as it was by then.
func TestArtifactBlocks(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		g := rail(t, guardrail.Options{Output: guardrail.Output{CollectAll: all, PII: &guardrail.PII{Rule: act(guardrail.Block), Email: true}}})
		a := g.Answer(context.Background())
		passed := a.Text("Here: bob").Text
		p := a.Artifact(update(false, true, agentsvc.TextPart("bob@x.org")))
		passed += p.Text
		p.Artifacts = append(p.Artifacts, a.Artifact(update(false, true, agentsvc.TextPart("more"))).Artifacts...)
		end := a.End()
		passed += a.Text("more").Text + end.Text
		want := "Here: bob\n\nThe rest of the answer was withheld by the guardrail \"house\" (output.pii)."
		if all {
			want = `The answer was withheld by the guardrail "house" (output.pii).`
		}
		if passed != want || !a.Blocked() || len(p.Artifacts)+len(end.Artifacts) > 0 {
			t.Errorf("collect all %v: %q passed and %v, %v", all, passed, p.Artifacts, end.Artifacts)
		}
	}
}
