// Package app is one tenant's live house: [Build] turns a configuration into an [App] whose agents can be called. It
// serves the start, a reload and a tenant's first call alike, and it is the only room that knows every kind of model,
// tool and agent: llms.go, tools.go and agents.go hold the tables.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/tool"
	"stoa/authz"
	"stoa/tenancy/db"
)

// House is what all apps of a process share.
type House struct {
	DB      *db.DB
	Hub     *task.Hub
	Workers task.Handoff
	Retry   queue.Retry
	// Outside reaches public addresses only, Inside private networks as well.
	Outside, Inside *egress.Client
	Log             *slog.Logger
}

// Tenant says whose configuration is built. Trusted is the operator's own, who may reach any address.
type Tenant struct {
	ID       db.ID
	Name     string
	Revision int64
	Inside   bool // private addresses may be called
}

// App is a tenant's agents, ready to be called. It never changes: another configuration is another App.
type App struct {
	tasks    *task.Service
	runner   *runner.Runner
	policy   *authz.Policy
	cards    []agentsvc.Card
	index    map[string]int
	fallback string // agent of the default card, "" = none
	org, url string
}

// Build makes an app of cfg. It calls nobody: what it returns costs memory alone. Its errors may be shown to whoever
// wrote the configuration.
func Build(cfg *config.Config, t Tenant, h House) (*App, error) {
	log := h.Log.With("app", t.Name)
	policy, err := authz.NewPolicy(t.ID)
	if err != nil {
		return nil, err
	}
	b := builder{cfg: cfg, log: log, out: h.Outside}
	if t.Inside {
		b.out = h.Inside
	}
	agents, err := b.agents()
	if err != nil {
		return nil, err
	}
	a := &App{policy: policy, index: map[string]int{}}
	a.tasks = task.New(store.New(h.DB, t.ID), t.ID, t.Revision, h.Hub, h.Workers, log)
	a.runner = runner.New(a.tasks, agents, h.Retry, log)
	for _, name := range cfg.AgentNames() {
		a.index[name] = len(a.cards)
		a.cards = append(a.cards, card(name, cfg.Agents[name]))
	}
	a.fallback = defaultAgent(cfg, a.cards)
	if p := cfg.Server.Provider; p != nil {
		a.org, a.url = p.Org, p.URL
	}
	return a, nil
}

// Tasks is the pass of the app.
func (a *App) Tasks() *task.Service { return a.tasks }

// Run runs one of the app's runs to its end.
func (a *App) Run(ctx context.Context, run store.Run) error { return a.runner.Run(ctx, run) }

// Policy decides who may do what in the app.
func (a *App) Policy() *authz.Policy { return a.policy }

// Cards describes the agents in file order. The slice is shared: it is not to be changed.
func (a *App) Cards() []agentsvc.Card { return a.cards }

// Card describes an agent.
func (a *App) Card(name string) (agentsvc.Card, bool) {
	i, ok := a.index[name]
	if !ok {
		return agentsvc.Card{}, false
	}
	return a.cards[i], true
}

// DefaultCard describes the agent that stands for the app, if one does.
func (a *App) DefaultCard() (agentsvc.Card, bool) { return a.Card(a.fallback) }

// Provider names who offers the app, as its cards show it.
func (a *App) Provider() (org, url string) { return a.org, a.url }

// Close gives back what the app holds outside its memory.
func (a *App) Close() error { return nil }

// builder holds what is shared while one configuration is built.
type builder struct {
	cfg    *config.Config
	log    *slog.Logger
	out    *egress.Client
	models map[string]llm.Provider
	tools  map[string]tool.Tool
}

func (b *builder) agents() (map[string]agent.Agent, error) {
	var errs []error
	var err error
	b.models, err = b.llms()
	errs = append(errs, err)
	b.tools, err = b.allTools()
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	agents := make(map[string]agent.Agent, len(b.cfg.Agents))
	for name, a := range b.cfg.Agents {
		build := agentKinds[a.Type]
		if build == nil {
			return nil, fmt.Errorf("agents.%s.type: %s is not available yet", name, a.Type)
		}
		if agents[name], err = build(b, a); err != nil {
			return nil, fmt.Errorf("agents.%s: %w", name, err)
		}
	}
	return agents, nil
}
