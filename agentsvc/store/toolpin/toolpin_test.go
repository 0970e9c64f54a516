package toolpin_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/agentsvc/store/toolpin"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestPins(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		alice, bob := toolpin.New(d, "alice"), toolpin.New(d, "bob")
		def := func(tool, hash string) toolpin.Definition {
			return toolpin.Definition{Tool: tool, Hash: hash, Body: `{"is":"` + hash + `"}`}
		}
		updatePins := func(s *toolpin.Store, server string, want []string, defs ...toolpin.Definition) {
			t.Helper()
			drifted, err := s.Update(ctx, server, defs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, drifted); diff != "" {
				t.Errorf("drifted: %s", diff)
			}
		}
		updatePins(alice, "shop", nil, def("a", "a1"), def("b", "b1"))
		updatePins(alice, "bank", nil, def("a", "x1"))
		updatePins(bob, "shop", nil, def("a", "a9")) // pins of another tenant do not matter
		updatePins(alice, "shop", nil, def("a", "a1"), def("b", "b1"))
		updatePins(alice, "shop", []string{"a"}, def("a", "a2"), def("b", "b1"))
		updatePins(alice, "shop", []string{"a"}, def("a", "a2"))
		updatePins(alice, "shop", nil, def("a", "a1"))
		updatePins(alice, "shop", []string{"a"}, def("a", "a3"))

		drift := def("a", "a3")
		want := []toolpin.Pin{
			{Server: "bank", Accepted: def("a", "x1")},
			{Server: "shop", Accepted: def("a", "a1"), Drift: &drift},
			{Server: "shop", Accepted: def("b", "b1")},
		}
		pins, err := alice.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		times := cmpopts.IgnoreFields(toolpin.Pin{}, "PinnedAt", "DriftedAt")
		if diff := cmp.Diff(want, pins, times); diff != "" {
			t.Error(diff)
		}
		if pins[1].DriftedAt.Before(pins[1].PinnedAt) || pins[1].PinnedAt.IsZero() {
			t.Errorf("pinned at %v, drifted at %v", pins[1].PinnedAt, pins[1].DriftedAt)
		}

		if _, err := alice.Accept(ctx, audit.Actor{Name: "op"}, "shop", "a", "a2"); !errors.Is(err, agentsvc.CodeInvalid) {
			t.Errorf("accepting what is no longer there: %v", err)
		}
		for _, s := range []*toolpin.Store{bob, toolpin.New(d, "nobody")} {
			if _, err := s.Accept(ctx, audit.Actor{Name: "op"}, "shop", "b", "b1"); !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("accepting a stranger's: %v", err)
			}
		}
		for range 2 { // the second time changes nothing
			pin, err := alice.Accept(ctx, audit.Actor{Name: "op"}, "shop", "a", "a3")
			if diff := cmp.Diff(toolpin.Pin{Server: "shop", Accepted: drift}, pin, times); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
		}
		updatePins(alice, "shop", nil, drift)
		if pins, err := bob.List(ctx); err != nil || len(pins) != 1 || pins[0].Drift != nil {
			t.Errorf("bob has %+v, %v", pins, err)
		}
	})
}

// TestIsolation: a tenant neither reads, changes nor accepts another tenant's pins.
func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		alice, bob := toolpin.New(d, "alice"), toolpin.New(d, "bob")
		for _, hash := range []string{"h1", "h2"} {
			if _, err := alice.Update(ctx, "shop", []toolpin.Definition{{Tool: "a", Hash: hash, Body: "{}"}}); err != nil {
				t.Fatal(err)
			}
		}
		before, err := alice.List(ctx)
		if err != nil || len(before) != 1 || before[0].Drift == nil {
			t.Fatal(before, err)
		}
		if pins, err := bob.List(ctx); err != nil || len(pins) != 0 {
			t.Errorf("Bob lists %+v (%v)", pins, err)
		}
		if _, err := bob.Accept(ctx, audit.Actor{Name: "op"}, "shop", "a", "h2"); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("Bob accepts: %v", err)
		}
		if drifted, err := bob.Update(ctx, "shop", []toolpin.Definition{{Tool: "a", Hash: "h3", Body: "{}"}}); err != nil || len(drifted) != 0 {
			t.Errorf("Bob's first definition: %v (%v)", drifted, err)
		}
		after, err := alice.List(ctx)
		if diff := cmp.Diff(before, after); err != nil || diff != "" {
			t.Errorf("Alice's pins have changed (%v)\n%s", err, diff)
		}
	})
}
