package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
	"stoa/ratelimit"
)

// Schedule is when an agent is started by the clock, and with which words.
type Schedule struct {
	Cron  *trigger.Cron
	Zone  *time.Location
	Input string // "" = the time
}

// Webhook is where and how an agent is started by another service.
type Webhook struct {
	Agent     string
	Path      string
	Methods   []string
	Signature *trigger.Signature
	Input     *trigger.Input
	Waits     time.Duration     // for the result; 0 = it is not waited for
	Callback  *trigger.Callback // where the result is posted; nil = nowhere
}

// triggers are what starts an app's agents without a caller.
type triggers struct {
	schedules map[string]*Schedule // by agent
	webhooks  map[string]*Webhook  // by path
}

// triggers makes the triggers that are turned on.
func (b *builder) triggers() triggers {
	out := triggers{map[string]*Schedule{}, map[string]*Webhook{}}
	for _, name := range b.cfg.AgentNames() {
		t := b.cfg.Agents[name].Trigger
		if t == nil || !t.Enabled {
			continue
		}
		path := "agents." + name + ".trigger"
		switch t.Type {
		case "schedule":
			c, err := trigger.ParseCron(t.Cron, t.Timezone)
			b.wrong(path, err)
			if err == nil {
				out.schedules[name] = &Schedule{c, c.Zone(), t.Input}
			}
		case "webhook":
			signature, err := trigger.NewSignature(t.Secret, t.SignatureHeader, t.TimestampHeader)
			b.wrong(path, err)
			w, err := webhook(name, t)
			b.wrong(path+".webhook_input", err)
			if w != nil {
				w.Signature = signature
			}
			out.webhooks[t.Path] = w
		}
	}
	return out
}

func webhook(agent string, t *config.Trigger) (*Webhook, error) {
	w := &Webhook{Agent: agent, Path: t.Path, Methods: t.Methods}
	switch t.Response.Mode {
	case "sync":
		w.Waits = t.Response.Timeout
	case "callback":
		w.Callback = &trigger.Callback{Field: t.Response.CallbackField, Hosts: t.Response.CallbackHosts}
	}
	var source string
	var fields []trigger.Field
	if in := t.WebhookInput; in != nil {
		source = in.Template
		for _, f := range in.ExtractFields {
			fields = append(fields, trigger.Field{Path: f.Path, As: f.Name(), Required: f.Required})
		}
	}
	var err error
	w.Input, err = trigger.NewInput(t.Input, source, fields)
	return w, err
}

// Schedules are when the app's agents are started by the clock.
func (a *App) Schedules() map[string]*Schedule { return a.triggers.schedules }

// Webhooks are where the app's agents are started by other services, by path.
func (a *App) Webhooks() map[string]*Webhook { return a.triggers.webhooks }

// Tick starts an agent for a tick of its schedule, once however often it is told to. It returns a [trigger.ErrRefused] where a
// limit or budget refuses it, the app stores as much as it may, or the agent takes no such message, and [trigger.ErrOff] if the agent has no such schedule.
func (a *App) Tick(ctx context.Context, t trigger.Tick) (agentsvc.TaskID, error) {
	s := a.triggers.schedules[t.Agent]
	if s == nil || s.Cron.String() != t.Spec {
		return "", trigger.ErrOff
	}
	owner, key := trigger.Owner(t.Agent), trigger.TickKey(t.At)
	if id, err := a.tasks.Keyed(ctx, owner, t.Agent, key); !errors.Is(err, agentsvc.ErrNotFound) {
		return id, err
	}
	at := t.At.In(s.Zone).Format(time.RFC3339)
	if s.Input == "" {
		s = &Schedule{Input: "It is " + at + "."}
	}
	m := agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(s.Input)}, Metadata: map[string]any{"trigger": "schedule", "scheduled_at": at}}
	sub := task.Submission{Agent: t.Agent, Owner: owner, Message: m, Key: key, Unasked: true}
	_, settle, err := a.Reserve(ctx, &sub)
	if err == nil {
		defer settle()
		var opened agentsvc.Task
		if opened, err = a.tasks.Submit(ctx, sub); err == nil {
			return opened.ID, nil
		}
	}
	var spent *agentsvc.ExhaustedError
	var full *agentsvc.StoredError
	var invalid *agentsvc.InvalidError
	if errors.Is(err, ratelimit.ErrExhausted) || errors.As(err, &spent) || errors.As(err, &full) || errors.As(err, &invalid) {
		err = fmt.Errorf("%w: %w", trigger.ErrRefused, err)
	}
	return "", err
}

// Reserve counts a call against the app's budgets and limits, and notes in it what is held for its turn, which settle gives
// back unless the turn was written. It tells how the limits stand, and returns an [*agentsvc.ExhaustedError] or a
// [ratelimit.ExhaustedError] if the call may not be made.
func (a *App) Reserve(ctx context.Context, sub *task.Submission) (states []ratelimit.State, settle func(), err error) {
	// The budgets first: they are only looked at, so that a call which they refuse counts for no limit.
	if err := a.Afford(ctx, sub.Agent, sub.Owner); err != nil {
		return nil, nil, err
	}
	who := ratelimit.Caller{Agent: sub.Agent, Owner: sub.Owner, Session: sub.Message.Context}
	g, err := a.limits.Admit(ctx, who, sub.Message)
	if err != nil || g.Reserve.Tokens == 0 {
		return g.States, func() {}, err
	}
	hold := &task.Hold{Note: g.Reserve.Note()}
	sub.Hold = hold
	return g.States, func() {
		if !hold.Kept {
			a.limits.Release(who, g.Reserve)
		}
	}, nil
}
