package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

func TestPins(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, _ *store.Store) {
		ctx := t.Context()
		alice, bob := store.New(d, "alice"), store.New(d, "bob")
		def := func(tool, hash string) store.ToolDefinition {
			return store.ToolDefinition{Tool: tool, Hash: hash, Body: `{"is":"` + hash + `"}`}
		}
		updatePins := func(s *store.Store, server string, want []string, defs ...store.ToolDefinition) {
			t.Helper()
			drifted, err := s.UpdatePins(ctx, server, defs)
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
		want := []store.ToolPin{
			{Server: "bank", Accepted: def("a", "x1")},
			{Server: "shop", Accepted: def("a", "a1"), Drift: &drift},
			{Server: "shop", Accepted: def("b", "b1")},
		}
		pins, err := alice.ListPins(ctx)
		if err != nil {
			t.Fatal(err)
		}
		times := cmpopts.IgnoreFields(store.ToolPin{}, "PinnedAt", "DriftedAt")
		if diff := cmp.Diff(want, pins, times); diff != "" {
			t.Error(diff)
		}
		if pins[1].DriftedAt.Before(pins[1].PinnedAt) || pins[1].PinnedAt.IsZero() {
			t.Errorf("pinned at %v, drifted at %v", pins[1].PinnedAt, pins[1].DriftedAt)
		}

		var invalid *agentsvc.InvalidError
		if _, err := alice.AcceptPin(ctx, "op", "shop", "a", "a2"); !errors.As(err, &invalid) {
			t.Errorf("accepting what is no longer there: %v", err)
		}
		for _, s := range []*store.Store{bob, store.New(d, "nobody")} {
			if _, err := s.AcceptPin(ctx, "op", "shop", "b", "b1"); !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("accepting another app's: %v", err)
			}
		}
		for range 2 { // the second time changes nothing
			pin, err := alice.AcceptPin(ctx, "op", "shop", "a", "a3")
			if diff := cmp.Diff(store.ToolPin{Server: "shop", Accepted: drift}, pin, times); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
		}
		updatePins(alice, "shop", nil, drift)
		if pins, err := bob.ListPins(ctx); err != nil || len(pins) != 1 || pins[0].Drift != nil {
			t.Errorf("bob has %+v, %v", pins, err)
		}
	})
}
