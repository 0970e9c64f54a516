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

// remember keeps texts that an owner said to the agent helper.
func remember(t *testing.T, s *memory.Store, owner agentsvc.Owner, texts ...string) {
	t.Helper()
	for _, text := range texts {
		m := memory.Memory{Owner: owner, Agent: "helper", Context: "c", Task: "t", Role: agentsvc.RoleUser, Text: text}
		if err := s.Add(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// find returns the texts that f finds.
func find(t *testing.T, f memory.Finder, owner agentsvc.Owner, question string, sure bool) []string {
	t.Helper()
	found, err := f.Find(t.Context(), owner, question, 3, sure)
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

func want(t *testing.T, what string, got []string, texts ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, texts...), got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func list(t *testing.T, s *memory.Store, w memory.Whose) (texts []string) {
	t.Helper()
	found, _, err := s.List(t.Context(), w, 100, "")
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
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		m := memory.Memory{Owner: ana, Agent: "helper", Context: "c1", Task: "t1", Role: agentsvc.RoleAgent, Text: " NUL \x00, bad \xff and quotes '\" "}
		if err := s.Add(t.Context(), m, memory.Memory{Owner: ana, Text: "  "}); err != nil {
			t.Fatal(err)
		}
		got, more, err := s.List(t.Context(), memory.Whose{Subject: "ana"}, 10, "")
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
		remember(t, s, bob, strings.Repeat("long ", 10_000))
		if n := len(list(t, s, memory.Whose{Subject: "bob"})[0]); n > 8<<10 {
			t.Errorf("a memory of %d bytes is kept", n)
		}
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		remember(t, s, ana, "one", "two", "three")
		remember(t, s, bob, "bob's")
		remember(t, s, agentsvc.Owner{Issuer: "other", Subject: "ana"}, "another ana's")
		issuer, other := "test", "nobody"
		for _, c := range []struct {
			name string
			w    memory.Whose
			want []string
		}{
			{"a user", memory.Whose{Subject: "ana", Issuer: &issuer}, []string{"three", "two", "one"}},
			{"of any issuer", memory.Whose{Subject: "ana"}, []string{"another ana's", "three", "two", "one"}},
			{"of another issuer", memory.Whose{Subject: "ana", Issuer: &other}, nil},
			{"with an agent", memory.Whose{Subject: "bob", Agents: []string{"x", "helper"}}, []string{"bob's"}},
			{"with another agent", memory.Whose{Subject: "bob", Agents: []string{"x"}}, nil},
			{"with no agent", memory.Whose{Subject: "bob", Agents: []string{}}, nil},
			{"nobody", memory.Whose{Subject: "eve"}, nil},
		} {
			if diff := cmp.Diff(c.want, list(t, s, c.w)); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
		}
		first, more, err := s.List(t.Context(), memory.Whose{Subject: "ana", Issuer: &issuer}, 2, "")
		if err != nil || !more || len(first) != 2 {
			t.Fatal(first, more, err)
		}
		second, more, err := s.List(t.Context(), memory.Whose{Subject: "ana", Issuer: &issuer}, 2, first[1].ID)
		if err != nil || more || len(second) != 1 || second[0].Text != "one" {
			t.Error(second, more, err)
		}
	})
}

func TestErase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := memory.New(d, "acme")
		remember(t, s, ana, "the moon is far", "the sun is hot")
		remember(t, s, bob, "the moon is near")
		n, err := s.Erase(t.Context(), memory.Whose{Subject: "ana"})
		if err != nil || n != 2 {
			t.Error(n, err)
		}
		want(t, "after", find(t, memory.Keyword{Store: s}, ana, "moon", false))
		want(t, "bob's", find(t, memory.Keyword{Store: s}, bob, "moon", false), "the moon is near")
		if n, err := s.Erase(t.Context(), memory.Whose{Subject: "ana"}); err != nil || n != 0 {
			t.Error(n, err)
		}
	})
}

// TestEraseWords leaves no word of what was erased in the index's pages.
func TestEraseWords(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s := memory.New(d, "acme")
	remember(t, s, ana, "swordfish zanzibar")
	remember(t, s, bob, "quixotic")
	pages := func() (all string) {
		err := d.Schema(t.Context(), "", func(x *sql.DB) error {
			return x.QueryRowContext(t.Context(), `SELECT group_concat(hex(block), ' ') FROM memory_words_data`).Scan(&all)
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	held := func(word string) bool {
		return strings.Contains(pages(), strings.ToUpper(hex.EncodeToString([]byte(word))))
	}
	if !held("swordfish") || !held("quixotic") {
		t.Fatal("the words do not stand in the pages as they are, so nothing is tested")
	}
	if _, err := s.Erase(t.Context(), memory.Whose{Subject: "ana"}); err != nil {
		t.Fatal(err)
	}
	if held("wordfish") || held("zanzibar") || !held("quixotic") {
		t.Errorf("after: swordfish %v, zanzibar %v, quixotic %v", held("wordfish"), held("zanzibar"), held("quixotic"))
	}
}

// TestBound keeps the latest of a user.
func TestBound(t *testing.T) {
	t.Parallel()
	s := memory.New(dbtest.SQLite(t), "acme")
	remember(t, s, bob, "bob's")
	for i := 0; i < memory.MaxKept+50; i += 50 {
		var some []memory.Memory
		for j := range 50 {
			some = append(some, memory.Memory{Owner: ana, Role: agentsvc.RoleUser, Text: fmt.Sprintf("number %d", i+j)})
		}
		if err := s.Add(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.Erase(t.Context(), memory.Whose{Subject: "ana"})
	if err != nil || n != memory.MaxKept {
		t.Errorf("%d memories are kept, want %d (%v)", n, memory.MaxKept, err)
	}
	want(t, "bob's", list(t, s, memory.Whose{Subject: "bob"}), "bob's")
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		acme, globex := memory.New(d, "acme"), memory.New(d, "globex")
		remember(t, acme, ana, "the password is swordfish")
		for name, f := range map[string]memory.Finder{"another user": memory.Keyword{Store: acme}, "another tenant": memory.Keyword{Store: globex}} {
			owner := bob
			if name == "another tenant" {
				owner = ana
			}
			want(t, name, find(t, f, owner, "what is the password", false))
		}
		if got := list(t, globex, memory.Whose{Subject: "ana"}); got != nil {
			t.Errorf("another tenant lists %v", got)
		}
		if n, err := globex.Erase(t.Context(), memory.Whose{Subject: "ana"}); err != nil || n != 0 {
			t.Errorf("another tenant erases %d (%v)", n, err)
		}
		want(t, "her own", find(t, memory.Keyword{Store: acme}, ana, "what is the password", false), "the password is swordfish")
	})
}
