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
	Agent         string
	Path          string
	Methods       []string
	Signature     *trigger.Signature
	Input         *trigger.Input
	ResultTimeout time.Duration     // for the result; 0 = it is not waited for
	Callback      *trigger.Callback // where the result is posted; nil = nowhere
}

// triggerSet are what starts an app's agents without a caller.
type triggerSet struct {
	schedules map[string]*Schedule // by agent
	webhooks  map[string]*Webhook  // by path
}

// newTriggers makes the triggers that are turned on.
func (b *builder) newTriggers() triggerSet {
	out := triggerSet{map[string]*Schedule{}, map[string]*Webhook{}}
	for _, name := range b.cfg.AgentNames() {
		t := b.cfg.Agents[name].Trigger
		if t == nil || !t.Enabled {
			continue
		}
		path := "agents." + name + ".trigger"
		switch t.Type {
		case "schedule":
			c, err := trigger.ParseCron(t.Cron, t.Timezone)
			b.addProblem(path, err)
			if err == nil {
				out.schedules[name] = &Schedule{c, c.Location(), t.Input}
			}
		case "webhook":
			signature, err := trigger.NewSignature(t.Secret, t.SignatureHeader, t.TimestampHeader)
			b.addProblem(path, err)
			w, err := newWebhook(name, t)
			b.addProblem(path+".webhook_input", err)
			if w != nil {
				w.Signature = signature
			}
			out.webhooks[t.Path] = w
		}
	}
	return out
}

func newWebhook(agent string, t *config.Trigger) (*Webhook, error) {
	w := &Webhook{Agent: agent, Path: t.Path, Methods: t.Methods}
	switch t.Response.Mode {
	case "sync":
		w.ResultTimeout = t.Response.Timeout
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

// StartTick starts an agent for a tick of its schedule, once however often it is told to. It returns a [trigger.ErrTickRefused] where a
// limit or budget refuses it, the app stores as much as it may, or the agent takes no such message, and [trigger.ErrNoSchedule] if the agent has no such schedule.
func (a *App) StartTick(ctx context.Context, t trigger.Tick) (agentsvc.TaskID, error) {
	s := a.triggers.schedules[t.Agent]
	if s == nil || s.Cron.String() != t.Spec {
		return "", trigger.ErrNoSchedule
	}
	owner, key := trigger.TaskOwner(t.Agent), trigger.TickKey(t.At)
	if id, err := a.tasks.FindByKey(ctx, owner, t.Agent, key); !errors.Is(err, agentsvc.ErrNotFound) {
		return id, err
	}
	at := t.At.In(s.Zone).Format(time.RFC3339)
	if s.Input == "" {
		s = &Schedule{Input: "It is " + at + "."}
	}
	m := agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(s.Input)}, Metadata: map[string]any{"trigger": "schedule", "scheduled_at": at}}
	sub := task.Submission{Agent: t.Agent, Owner: owner, Message: m, Key: key, Background: true}
	_, release, err := a.ReserveUsage(ctx, &sub)
	if err == nil {
		defer release()
		var opened agentsvc.Task
		if opened, err = a.tasks.Submit(ctx, sub); err == nil {
			return opened.ID, nil
		}
	}
	var spent *agentsvc.BudgetExhaustedError
	var full *agentsvc.StorageLimitError
	var invalid *agentsvc.InvalidError
	if errors.Is(err, ratelimit.ErrExhausted) || errors.As(err, &spent) || errors.As(err, &full) || errors.As(err, &invalid) {
		err = fmt.Errorf("%w: %w", trigger.ErrTickRefused, err)
	}
	return "", err
}

// ReserveUsage counts a call against the app's budgets and limits, and notes in it what is held for its turn, which settle gives
// back unless the turn was written. It tells how the limits stand, and returns an [*agentsvc.BudgetExhaustedError] or a
// [ratelimit.ExhaustedError] if the call may not be made.
func (a *App) ReserveUsage(ctx context.Context, sub *task.Submission) (states []ratelimit.State, release func(), err error) {
	// The budgets first: they are only looked at, so that a call which they refuse counts for no limit.
	if err := a.CheckBudget(ctx, sub.Agent, sub.Owner); err != nil {
		return nil, nil, err
	}
	caller := ratelimit.Caller{Agent: sub.Agent, Owner: sub.Owner, Session: sub.Message.Context}
	g, err := a.rateLimits.ReserveUsage(ctx, caller, sub.Message)
	if err != nil || g.Reservation.Tokens == 0 {
		return g.States, func() {}, err
	}
	reservation := &task.Reservation{Note: g.Reservation.EncodeText()}
	sub.Reservation = reservation
	return g.States, func() {
		if !reservation.Recorded {
			a.rateLimits.ReleaseReservation(caller, g.Reservation)
		}
	}, nil
}
