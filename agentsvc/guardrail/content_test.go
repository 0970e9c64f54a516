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
		return newGuardrail(t, guardrail.Options{Output: guardrail.Output{Content: &guardrail.Content{Rule: newRule(guardrail.Modify), Keywords: words}}})
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
		if got := evaluateAnswer(content(tt.words...), tt.text); got.joinPieces() != tt.want {
			t.Errorf("%q: %q became %q, want %q", tt.words, tt.text, got.joinPieces(), tt.want)
		}
	}
}

// TestFindings checks the findings of an answer: one for each check, up to where the answer was checked.
func TestFindings(t *testing.T) {
	t.Parallel()
	const text = "falcon bob@x.org falcon 4111111111111111"
	for _, tt := range []struct {
		o     guardrail.Output
		found string
		want  string
	}{
		{guardrail.Output{PII: &allPII, Content: &guardrail.Content{Rule: newRule(guardrail.Warn), Keywords: []string{"falcon"}}},
			"output.content=warn output.pii=modify", "falcon ***@*.*** falcon ****************"},
		{guardrail.Output{PII: &allPII, Content: &guardrail.Content{Keywords: []string{"falcon"}}},
			"output.content=block", `The answer was withheld by the guardrail "house" (output.content).`},
		{guardrail.Output{PII: &guardrail.PII{Rule: newRule(guardrail.Block), Email: true}, Content: &guardrail.Content{Rule: newRule(guardrail.Allow), Keywords: []string{"falcon"}}},
			"output.content=allow output.pii=block", "falcon \n\nThe rest of the answer was withheld by the guardrail \"house\" (output.pii)."},
		{guardrail.Output{CollectAll: true, PII: &allPII, Content: &guardrail.Content{Keywords: []string{"falcon"}}},
			"output.content=block output.pii=modify", `The answer was withheld by the guardrail "house" (output.content).`},
	} {
		got := evaluateAnswer(newGuardrail(t, guardrail.Options{Output: tt.o}), text)
		if formatFindings(got.Found) != tt.found || got.joinPieces() != tt.want {
			t.Errorf("found %q, want %q\npassed %q, want %q", formatFindings(got.Found), tt.found, got.joinPieces(), tt.want)
		}
	}
}

func newUpdate(more, last bool, parts ...agentsvc.Part) agentsvc.ArtifactUpdate {
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
	redact := guardrail.Options{Output: guardrail.Output{PII: &allPII}}
	tests := []struct {
		name     string
		in, want []agentsvc.ArtifactUpdate
	}{
		{"in one piece", []agentsvc.ArtifactUpdate{newUpdate(false, true, text("to bob@x.org"))}, []agentsvc.ArtifactUpdate{newUpdate(false, true, text("to ***@*.***"))}},
		{"across updates", []agentsvc.ArtifactUpdate{newUpdate(false, false, text("to bo")), newUpdate(true, false, text("b@x.o")), newUpdate(true, true, text("rg now"))},
			[]agentsvc.ArtifactUpdate{newUpdate(false, false, text("to ")), newUpdate(true, true, text("***@*.*** now"))}},
		{"kept back at first", []agentsvc.ArtifactUpdate{newUpdate(false, false, text("bob@x")), newUpdate(true, true, text("!"))},
			[]agentsvc.ArtifactUpdate{newUpdate(false, true, text("bob@x!"))}},
		{"without an end", []agentsvc.ArtifactUpdate{newUpdate(false, false, text("to bob@x.or"))},
			[]agentsvc.ArtifactUpdate{newUpdate(false, false, text("to ")), newUpdate(true, false, text("***@*.**"))}},
		{"begun earlier", []agentsvc.ArtifactUpdate{newUpdate(true, true, text("bob@x.org"))}, []agentsvc.ArtifactUpdate{newUpdate(true, true, text("***@*.***"))}},
		{"replaced", []agentsvc.ArtifactUpdate{newUpdate(false, false, text("a bob@x.or")), newUpdate(false, true, text("g"))},
			[]agentsvc.ArtifactUpdate{newUpdate(false, false, text("a ")), newUpdate(false, true, text("g"))}},
		{"other parts", []agentsvc.ArtifactUpdate{newUpdate(false, true, text("bob"), data(map[string]any{"bob@x.org": []any{"bob@x.org", 1.0}}), file("a,bob@x.org"), picture, text("@x.org"))},
			[]agentsvc.ArtifactUpdate{newUpdate(false, true, text("bob"), data(map[string]any{"***@*.***": []any{"***@*.***", 1.0}}), file("a,***@*.***"), picture, text("@x.org"))}},
		{"nothing in it", []agentsvc.ArtifactUpdate{newUpdate(false, false), newUpdate(true, true)}, []agentsvc.ArtifactUpdate{newUpdate(false, false), newUpdate(true, true)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newGuardrail(t, redact).NewAnswerCheck(context.Background())
			var got []agentsvc.ArtifactUpdate
			for _, u := range tt.in {
				got = append(got, a.CheckArtifact(u).Artifacts...)
			}
			got = append(got, a.EndAnswer().Artifacts...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
	a := newGuardrail(t, redact).NewAnswerCheck(context.Background())
	named := newUpdate(false, true, text("x"))
	named.Artifact.Name, named.Artifact.Description, named.Artifact.Metadata = "bob@x.org.txt", "of bob@x.org", map[string]any{"by": "bob@x.org"}
	got := a.CheckArtifact(named).Artifacts[0].Artifact
	if got.Name != "***@*.***.***" || got.Description != "of ***@*.***" || got.Metadata["by"] != "***@*.***" {
		t.Errorf("around the parts: %+v", got)
	}
}

// TestArtifactBlocks checks that a blocked artifact ends the answer, and that the text kept back before it is still
// checked.
func TestArtifactBlocks(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		g := newGuardrail(t, guardrail.Options{Output: guardrail.Output{CollectAll: all, PII: &guardrail.PII{Rule: newRule(guardrail.Block), Email: true}}})
		a := g.NewAnswerCheck(context.Background())
		passed := a.CheckText("Here: bob").Text
		p := a.CheckArtifact(newUpdate(false, true, agentsvc.TextPart("bob@x.org")))
		passed += p.Text
		p.Artifacts = append(p.Artifacts, a.CheckArtifact(newUpdate(false, true, agentsvc.TextPart("more"))).Artifacts...)
		end := a.EndAnswer()
		passed += a.CheckText("more").Text + end.Text
		want := "Here: bob\n\nThe rest of the answer was withheld by the guardrail \"house\" (output.pii)."
		if all {
			want = `The answer was withheld by the guardrail "house" (output.pii).`
		}
		if passed != want || !a.IsBlocked() || len(p.Artifacts)+len(end.Artifacts) > 0 {
			t.Errorf("collect all %v: %q passed and %v, %v", all, passed, p.Artifacts, end.Artifacts)
		}
	}
}
