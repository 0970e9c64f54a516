package main

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// TestReadersAfterTheEnd subscribes with readers that were admitted before their app was suspended or deleted, after
// the subscriptions of that time were ended: theirs end as well. Once the app is active again, subscriptions work.
func TestReadersAfterTheEnd(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name":   "acme",
			"config": "llms: {demo: {provider: scripted, script: [{then: [{say: slow, pause: 1m}]}]}}\nagents: {assistant: {llm: demo}}",
		})
		app, err := h.apps.LoadApp(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		a, _, release, err := h.runtimes.Acquire(t.Context(), app.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		sub := task.Submission{Agent: "assistant", Owner: agentsvc.Owner{Issuer: "stoa", Subject: "ana"}, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart("hello")}}}
		opened, err := a.Tasks().Messages.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			change func() error
			want   error
		}{
			{func() error {
				_, err := h.apps.SuspendApp(t.Context(), audit.Actor{Name: "ops"}, "acme", "")
				return err
			}, tenancy.ErrSuspended},
			{func() error {
				_, err := h.apps.ResumeApp(t.Context(), audit.Actor{Name: "ops"}, "acme", "")
				return err
			}, nil},
			{func() error { return h.apps.DeleteApp(t.Context(), audit.Actor{Name: "ops"}, "acme") }, agentsvc.CodeNotFound},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, evs, err := a.Tasks().Reader.Follow(ctx, task.Visibility{}, opened.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			for !errors.Is(h.tryAcquireApp(t, app), c.want) { // each waits for the check in progress
				if t.Context().Err() != nil {
					t.Fatal("the change is not seen")
				}
			}
			want := c.want
			// it is admitted, reads until it disconnects, and is not ended
			if want == nil {
				cancel()
				want = context.Canceled
			}
			var got error
			for _, err := range evs {
				got = err
			}
			if !errors.Is(got, want) {
				t.Errorf("the reader ended with %v, want %v", got, want)
			}
		}
	})
}

func (ts *testServer) tryAcquireApp(t *testing.T, app tenancy.App) error {
	t.Helper()
	_, _, release, err := ts.runtimes.Acquire(t.Context(), app.ID)
	release()
	return err
}
