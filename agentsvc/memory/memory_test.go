package memory_test

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var (
	ana = agentsvc.Owner{Issuer: "test", Subject: "ana"}
	bob = agentsvc.Owner{Issuer: "test", Subject: "bob"}
)

// addMemories stores texts of an owner to the agent helper.
func addMemories(t *testing.T, s *memory.Store, owner agentsvc.Owner, texts ...string) {
	t.Helper()
	for _, text := range texts {
		m := memory.Memory{Owner: owner, Agent: "helper", Context: "c", Task: "t", Role: agentsvc.RoleUser, Text: text}
		if err := s.AddMemories(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// findTexts returns the texts that f finds.
func findTexts(t *testing.T, f memory.Finder, owner agentsvc.Owner, question string, onlyRelevant bool) []string {
	t.Helper()
	found, err := f.FindMemories(t.Context(), owner, question, 3, onlyRelevant)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{}
	for _, m := range found {
		if m.Owner != owner {
			t.Errorf("%q is %v's", m.Text, m.Owner)
		}
		texts = append(texts, m.Text)
	}
	return texts
}

func checkTexts(t *testing.T, what string, got []string, texts ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, texts...), got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func listTexts(t *testing.T, s *memory.Store, w memory.Filter) (texts []string) {
	t.Helper()
	found, _, err := s.ListMemories(t.Context(), w, 100, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range found {
		texts = append(texts, m.Text)
	}
	return texts
}

func TestAdd(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		m := memory.Memory{Owner: ana, Agent: "helper", Context: "c1", Task: "t1", Role: agentsvc.RoleAgent, Text: " NUL \x00, bad \xff and quotes '\" "}
		if err := s.AddMemories(t.Context(), m, memory.Memory{Owner: ana, Text: "  "}); err != nil {
			t.Fatal(err)
		}
		got, more, err := s.ListMemories(t.Context(), memory.Filter{Subject: "ana"}, 10, "")
		if err != nil || more || len(got) != 1 {
			t.Fatal(got, more, err)
		}
		if got[0].At.IsZero() || got[0].ID == "" {
			t.Errorf("no time or id: %+v", got[0])
		}
		m.Text, m.ID, m.At = "NUL , bad  and quotes '\"", got[0].ID, got[0].At
		if diff := cmp.Diff(m, got[0]); diff != "" {
			t.Error(diff)
		}
		addMemories(t, s, bob, strings.Repeat("long ", 10_000))
		if n := len(listTexts(t, s, memory.Filter{Subject: "bob"})[0]); n > 8<<10 {
			t.Errorf("a memory of %d bytes is kept", n)
		}
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		addMemories(t, s, ana, "one", "two", "three")
		addMemories(t, s, bob, "bob's")
		addMemories(t, s, agentsvc.Owner{Issuer: "other", Subject: "ana"}, "another ana's")
		issuer, other := "test", "nobody"
		for _, c := range []struct {
			name string
			w    memory.Filter
			want []string
		}{
			{"a user", memory.Filter{Subject: "ana", Issuer: &issuer}, []string{"three", "two", "one"}},
			{"of any issuer", memory.Filter{Subject: "ana"}, []string{"another ana's", "three", "two", "one"}},
			{"of another issuer", memory.Filter{Subject: "ana", Issuer: &other}, nil},
			{"with an agent", memory.Filter{Subject: "bob", Agents: []string{"x", "helper"}}, []string{"bob's"}},
			{"with another agent", memory.Filter{Subject: "bob", Agents: []string{"x"}}, nil},
			{"with no agent", memory.Filter{Subject: "bob", Agents: []string{}}, nil},
			{"nobody", memory.Filter{Subject: "eve"}, nil},
		} {
			if diff := cmp.Diff(c.want, listTexts(t, s, c.w)); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
		}
		first, more, err := s.ListMemories(t.Context(), memory.Filter{Subject: "ana", Issuer: &issuer}, 2, "")
		if err != nil || !more || len(first) != 2 {
			t.Fatal(first, more, err)
		}
		second, more, err := s.ListMemories(t.Context(), memory.Filter{Subject: "ana", Issuer: &issuer}, 2, first[1].ID)
		if err != nil || more || len(second) != 1 || second[0].Text != "one" {
			t.Error(second, more, err)
		}
	})
}

func TestErase(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		addMemories(t, s, ana, "the moon is far", "the sun is hot")
		addMemories(t, s, bob, "the moon is near")
		n, _, err := s.EraseMemories(t.Context(), memory.Filter{Subject: "ana"})
		if err != nil || n != 2 {
			t.Error(n, err)
		}
		checkTexts(t, "after", findTexts(t, memory.KeywordFinder{Store: s}, ana, "moon", false))
		checkTexts(t, "bob's", findTexts(t, memory.KeywordFinder{Store: s}, bob, "moon", false), "the moon is near")
		if n, _, err := s.EraseMemories(t.Context(), memory.Filter{Subject: "ana"}); err != nil || n != 0 {
			t.Error(n, err)
		}
	})
}

// TestEraseWords checks that no word of an erased memory remains in the index's pages.
func TestEraseWords(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s := memory.New(d, "acme")
	addMemories(t, s, ana, "swordfish zanzibar")
	addMemories(t, s, bob, "quixotic")
	pages := func() (all string) {
		err := d.ChangeSchema(t.Context(), "", func(x *sql.DB) error {
			return x.QueryRowContext(t.Context(), `SELECT group_concat(hex(block), ' ') FROM memory_words_data`).Scan(&all)
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	indexed := func(word string) bool {
		return strings.Contains(pages(), strings.ToUpper(hex.EncodeToString([]byte(word))))
	}
	if !indexed("swordfish") || !indexed("quixotic") {
		t.Fatal("the words do not stand in the pages as they are, so nothing is tested")
	}
	if _, _, err := s.EraseMemories(t.Context(), memory.Filter{Subject: "ana"}); err != nil {
		t.Fatal(err)
	}
	if indexed("wordfish") || indexed("zanzibar") || !indexed("quixotic") {
		t.Errorf("after: swordfish %v, zanzibar %v, quixotic %v", indexed("wordfish"), indexed("zanzibar"), indexed("quixotic"))
	}
}

// TestBound checks that the latest memories of a user are kept.
func TestBound(t *testing.T) {
	t.Parallel()
	s := memory.New(dbtest.NewSQLite(t), "acme")
	addMemories(t, s, bob, "bob's")
	for i := 0; i < memory.MaxMemories+50; i += 50 {
		var some []memory.Memory
		for j := range 50 {
			some = append(some, memory.Memory{Owner: ana, Role: agentsvc.RoleUser, Text: fmt.Sprintf("number %d", i+j)})
		}
		if err := s.AddMemories(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	n, _, err := s.EraseMemories(t.Context(), memory.Filter{Subject: "ana"})
	if err != nil || n != memory.MaxMemories {
		t.Errorf("%d memories are kept, want %d (%v)", n, memory.MaxMemories, err)
	}
	checkTexts(t, "bob's", listTexts(t, s, memory.Filter{Subject: "bob"}), "bob's")
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		acme, globex := memory.New(d, "acme"), memory.New(d, "globex")
		addMemories(t, acme, ana, "the password is swordfish")
		for name, f := range map[string]memory.Finder{"another user": memory.KeywordFinder{Store: acme}, "another tenant": memory.KeywordFinder{Store: globex}} {
			owner := bob
			if name == "another tenant" {
				owner = ana
			}
			checkTexts(t, name, findTexts(t, f, owner, "what is the password", false))
		}
		if got := listTexts(t, globex, memory.Filter{Subject: "ana"}); got != nil {
			t.Errorf("another tenant lists %v", got)
		}
		if n, _, err := globex.EraseMemories(t.Context(), memory.Filter{Subject: "ana"}); err != nil || n != 0 {
			t.Errorf("another tenant erases %d (%v)", n, err)
		}
		checkTexts(t, "her own", findTexts(t, memory.KeywordFinder{Store: acme}, ana, "what is the password", false), "the password is swordfish")
	})
}
