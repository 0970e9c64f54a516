package runtime_test

import (
	"log/slog"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus/corpustest"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestDocumentRoles checks that an agent finds a document for a role for a caller who had it when the turn was accepted:
// also if the turn waited in the queue, or goes on after a decision of a user without the role; and for no other caller.
func TestDocumentRoles(t *testing.T) {
	t.Parallel()
	const src = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^pay"}
        then: [{call: {tool: pay, arguments: {expression: "1+1"}}}]
      - when: {text: "^search"}
        then: [{call: {tool: search_manual, arguments: {query: "budget of the year"}}}]
      - when: {tool_result: pay}
        then: [{call: {tool: search_manual, arguments: {query: "budget of the year"}}}]
      - when: {tool_result: search_manual}
        then: [{say: "Found: {{result}}"}]
tools:
  pay: {type: function, handler: calculator, require_approval: true}
document_stores:
  manual: {source: {type: upload}}
agents:
  helper: {llm: demo, tools: [pay], document_stores: [manual]}
`
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		a := newAppWith(t, d, mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
		s, err := a.Documents().Store("manual")
		if err != nil {
			t.Fatal(err)
		}
		corpustest.Indexer{DB: d, Tenant: "acme", Spec: s.Spec}.Index(t, corpustest.Document{
			ID: "budget.md", Title: "Budget", Chunks: []string{"The budget of the year is ten millions."}, Access: document.Access{Roles: []string{"finance"}},
		})
		for _, c := range []struct {
			name  string
			roles []string
			found bool
		}{
			{"with the role", []string{"user", "finance"}, true},
			{"with another role", []string{"user", "finance "}, false},
			{"without roles", nil, false},
		} {
			requireAnswer := func(path string, got agentsvc.Task) {
				t.Helper()
				if got.Status.State != agentsvc.Completed || got.Status.Message == nil || strings.Contains(got.Status.Message.Text(), "ten millions") != c.found {
					t.Errorf("%s, %s: %+v", c.name, path, got.Status)
				}
			}
			sub := newSubmission("search")
			sub.Roles = c.roles
			got, _ := runTurn(t, a, sub)
			requireAnswer("at once", got)

			queued, err := a.Tasks().Messages.Submit(t.Context(), sub)
			if err != nil {
				t.Fatal(err)
			}
			dbtest.WaitUntil(t, "the task ends", func() bool {
				if got, err = a.Tasks().Reader.Get(t.Context(), task.Visibility{}, queued.ID, store.TaskParts{History: true}); err != nil {
					t.Fatal(err)
				}
				return got.Status.State.IsTerminal()
			})
			requireAnswer("from the queue", got)

			sub = newSubmission("pay")
			sub.Roles = c.roles
			asked, lines := runTurn(t, a, sub)
			if asked.Status.State != agentsvc.InputRequired {
				t.Fatalf("%v", lines)
			}
			decision := newSubmission("")
			decision.Owner, decision.Roles = agentsvc.Owner{Issuer: "test", Subject: "bob"}, nil
			if !c.found {
				decision.Roles = []string{"finance"} // the approver's roles are not the caller's
			}
			decision.Message.Task, decision.Decisions = asked.ID, []task.DecisionInput{{Outcome: agentsvc.OutcomeApproved}}
			got, _ = runTurn(t, a, decision)
			requireAnswer("after a decision", got)
		}
	})
}
