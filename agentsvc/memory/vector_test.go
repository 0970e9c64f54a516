package memory_test

import (
	"path/filepath"
	"testing"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/embeddertest"
	"stoa/agentsvc/embedder/ollama"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/vectorstore/chromem"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// embedding starts a server of vectors and returns how to ask it for those of a model.
func embedding(t *testing.T) (*embeddertest.Server, func(model string) embedder.Embedder) {
	server := embeddertest.New(t)
	out := egress.New(egress.Options{PrivateNetwork: true})
	t.Cleanup(out.Close)
	return server, func(model string) embedder.Embedder {
		return ollama.New(embedder.Options{Model: model, BaseURL: server.URL, HTTP: out.HTTP()})
	}
}

// embedded returns every text that a vector was asked for.
func embedded(server *embeddertest.Server) (texts []string) {
	texts = []string{}
	for _, r := range server.Requests() {
		texts = append(texts, r.Texts()...)
	}
	return texts
}

func TestVector(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, model := embedding(t)
		s := memory.New(d, "acme")
		v := memory.NewVector(s, model("m"), chromem.New(chromem.Options{}), 0)
		want(t, "nothing yet", find(t, v, ana, "zzz", true))
		remember(t, s, ana, "aaa aaa", "bbb bbb", "aab")
		remember(t, s, bob, "aaa of bob")
		want(t, "like", find(t, v, ana, "aaaa", true), "aaa aaa", "aab")
		want(t, "all", find(t, v, ana, "aaaa", false), "aaa aaa", "aab", "bbb bbb")
		want(t, "bob's", find(t, v, bob, "aaaa", false), "aaa of bob")
		remember(t, s, ana, "ccc")
		want(t, "a later one", find(t, v, ana, "cccc", true), "ccc")
		want(t, "vectors asked for", embedded(server),
			"aaa aaa", "bbb bbb", "aab", "aaaa", "aaaa", "aaa of bob", "aaaa", "ccc", "cccc")
	})
}

// TestVectorElsewhere has two processes share what the rows keep: vectors are made once, what one erases the other
// forgets.
func TestVectorElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, model := embedding(t)
		s := memory.New(d, "acme")
		here := memory.NewVector(s, model("m"), chromem.New(chromem.Options{}), 0)
		there := memory.NewVector(s, model("m"), chromem.New(chromem.Options{}), 0)
		remember(t, s, ana, "aaa", "bbb")
		want(t, "here", find(t, here, ana, "a", true), "aaa")
		want(t, "there", find(t, there, ana, "a", true), "aaa")
		want(t, "vectors asked for", embedded(server), "aaa", "bbb", "a", "a")
		if n, err := memory.NewRecall(s, here, memory.Options{}).Forget(t.Context(), memory.Whose{Subject: "ana"}); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		want(t, "here after", find(t, here, ana, "a", false))
		remember(t, s, ana, "ccc")
		want(t, "there after", find(t, there, ana, "a", false), "ccc")

		other := memory.NewVector(s, model("other"), chromem.New(chromem.Options{}), 0)
		before := len(embedded(server))
		want(t, "another model", find(t, other, ana, "c", true), "ccc")
		want(t, "makes vectors of its own", embedded(server)[before:], "ccc", "c")
	})
}

// TestVectorFolder finds the vectors of an earlier process in its folder, and erases them there.
func TestVectorFolder(t *testing.T) {
	t.Parallel()
	_, model := embedding(t)
	s := memory.New(dbtest.SQLite(t), "acme")
	folder := filepath.Join(t.TempDir(), "vectors")
	open := func() *memory.Vector {
		return memory.NewVector(s, model("m"), chromem.New(chromem.Options{Path: folder}), 0)
	}
	files := func() int {
		names, err := filepath.Glob(filepath.Join(folder, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	remember(t, s, ana, "aaa", "bbb")
	want(t, "first", find(t, open(), ana, "a", true), "aaa")
	before := files()
	if before < 2 {
		t.Fatalf("%d files are in the folder", before)
	}
	again := open()
	want(t, "again", find(t, again, ana, "a", true), "aaa")
	if _, err := memory.NewRecall(s, open(), memory.Options{}).Forget(t.Context(), memory.Whose{Subject: "ana"}); err != nil {
		t.Fatal(err)
	}
	if n := files(); n != 0 {
		t.Errorf("%d files are left of what was erased", n)
	}
}

// TestVectorBound drops from memory what has not been asked for, and finds it again.
func TestVectorBound(t *testing.T) {
	t.Parallel()
	server, model := embedding(t)
	s := memory.New(dbtest.SQLite(t), "acme")
	v := memory.NewVector(s, model("m"), chromem.New(chromem.Options{}), 3)
	remember(t, s, ana, "aaa", "bbb")
	remember(t, s, bob, "bbb", "aaa of bob")
	for range 3 {
		want(t, "ana", find(t, v, ana, "a", true), "aaa")
		want(t, "bob", find(t, v, bob, "a", true), "aaa of bob")
	}
	if n := len(embedded(server)); n != 4+6 {
		t.Errorf("%d vectors were asked for, want 4 memories and 6 questions", n)
	}
}

func TestVectorFails(t *testing.T) {
	t.Parallel()
	server, model := embedding(t)
	s := memory.New(dbtest.SQLite(t), "acme")
	v := memory.NewVector(s, model("m"), chromem.New(chromem.Options{}), 0)
	remember(t, s, ana, "aaa")
	server.Fail(500)
	if _, err := v.Find(t.Context(), ana, "a", 3, true); err == nil {
		t.Error("an embedder that is down finds something")
	}
	server.Fail(0)
	want(t, "later", find(t, v, ana, "a", true), "aaa")
}
